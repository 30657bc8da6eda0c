"""Rules about dtypes and quantisation of either side."""

from collections.abc import Iterator

from eagleconv.rules.rule import Hit, Rule
from eagleconv.rules.subject import Subject

_F16_MAX = 65504.0


def _inherits(s: Subject) -> Iterator[Hit]:
    theirs = s.target.value("quantization_config") if s.target else None
    if theirs and s.value("quantization") is None and "quantization" in s.drafter.facts:
        method = (
            theirs.get("quant_method", "quantised") if isinstance(theirs, dict) else "quantised"
        )
        yield Hit(
            f"the target is {method}, the drafter is not: SGLang gives a drafter without a "
            "quantization_config its target's",
            "start SGLang with --speculative-draft-model-quantization unquant",
            key="quantization_config",
        )


def _dtype_of_target(s: Subject) -> Iterator[Hit]:
    if s.target is None or s.target.value("quantization_config"):
        return
    said, dtype = s.target.dtype, s.value("dtype")
    if said and dtype and said != dtype:
        yield Hit(
            f"the drafter is stored in {dtype}, the target in {said}: vLLM casts it to the "
            "target's, SGLang to the dtype in the drafter's config",
            f"start SGLang with --dtype {said}",
            key=next(iter(s.fact("dtype").keys), "dtype"),
        )


def _overflow(s: Subject) -> Iterator[Hit]:
    if s.target is None or s.target.dtype != "float16":
        return
    for stored in s.drafter.tensors.values():
        summary = s.summary(stored)
        if summary is not None and summary.largest > _F16_MAX:
            yield Hit(
                f"tensor {stored} reaches {summary.largest:.3g}, past float16's 65504, and the "
                "target is served in float16",
                "serve in bfloat16",
                tensor=stored,
            )


RULES: tuple[Rule, ...] = (
    Rule(
        "ECC008",
        "dtype-key-differs",
        "warning",
        "`dtype` and `torch_dtype` name the dtype of the tensors.",
        "Engines cast the weights to the key's dtype, and fail where target and drafter then "
        "differ ([sglang#3824](https://github.com/sgl-project/sglang/issues/3824), "
        "[sglang#5153](https://github.com/sgl-project/sglang/issues/5153)).",
        '`"torch_dtype": "float16"`, tensors BF16',
        "Write the dtype of the tensors.",
        "upgrade",
        unread=("dtype",),
    ),
    Rule(
        "ECQ001",
        "quantization-config-without-tensors",
        "error",
        "A drafter with a quantization_config has quantised tensors.",
        "The key is the target's where a config was copied; loaders then look for scales, or read "
        "the weights wrongly ([sglang#28196](https://github.com/sgl-project/sglang/pull/28196)).",
        '`"quantization_config": {"quant_method": "fp8"}`, all tensors BF16',
        "Remove it if it was copied from the target.",
        unread=("quantisation",),
    ),
    Rule(
        "ECQ002",
        "scales-without-config",
        "error",
        "Quantised tensors come with the quantization_config they were written with.",
        "Loaders refuse or drop the scales and read the packed weights as numbers.",
        "`q_proj.weight_scale`, no `quantization_config`",
        "Add the quantization_config.",
    ),
    Rule(
        "ECQ003",
        "quantization-inherited",
        "warning",
        "An unquantised drafter beside a quantised target is served as one.",
        "SGLang gives the drafter the target's scheme "
        "([sglang#28196](https://github.com/sgl-project/sglang/pull/28196), "
        "[vllm#120](https://github.com/neuralmagic/vllm/pull/120)); vLLM 0.32 uses the drafter's "
        "own.",
        "a target with `quant_method: fp8`, a drafter in bfloat16",
        "Say so when the engine is started.",
        engine_severity={"vllm": "info"},
        needs=("target",),
        check=_inherits,
        unread=("quantisation",),
    ),
    Rule(
        "ECQ004",
        "dtype-unlike-target",
        "warning",
        "Drafter and target are stored in one dtype.",
        "SGLang multiplied tensors of two dtypes and failed "
        "([sglang#3824](https://github.com/sgl-project/sglang/issues/3824), "
        "[sglang#3431](https://github.com/sgl-project/sglang/pull/3431), "
        "[sglang#25894](https://github.com/sgl-project/sglang/pull/25894)).",
        "drafter float16, target bfloat16",
        "Start the engine with one dtype.",
        engine_severity={"vllm": "info"},
        needs=("target",),
        check=_dtype_of_target,
        unread=("dtype",),
    ),
    Rule(
        "ECQ005",
        "overflows-float16",
        "error",
        "Weights fit the dtype the target is served in.",
        "A weight past 65504 becomes infinite in float16, and every draft NaN.",
        "`norm.weight` with a gain of 70000, target in float16",
        "Serve in bfloat16.",
        needs=("target",),
        check=_overflow,
    ),
)
