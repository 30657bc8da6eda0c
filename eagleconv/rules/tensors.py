"""Rules about the tensors: which there are, their shapes, and whether their values were trained."""

from collections.abc import Iterator

from eagleconv.rules.rule import Hit, Rule
from eagleconv.rules.subject import Subject
from eagleconv.rules.values import Summary, fresh_like


def _summaries(s: Subject) -> Iterator[tuple[str, Summary]]:
    for canonical, stored in s.drafter.tensors.items():
        summary = s.summary(stored)
        if summary is not None and canonical not in ("d2t", "t2d"):
            yield stored, summary


def _not_finite(s: Subject) -> Iterator[Hit]:
    for name, x in _summaries(s):
        if x.not_finite:
            yield Hit(
                f"tensor {name} holds {x.not_finite} value{'s' if x.not_finite > 1 else ''} that "
                "are NaN or infinite",
                "get a sound checkpoint: one NaN makes every draft NaN",
                tensor=name,
            )


def _zero(s: Subject) -> Iterator[Hit]:
    for name, x in _summaries(s):
        if x.constant == 0 and not name.endswith(("bias", "zero_point")):
            yield Hit(f"tensor {name} is all zeros", "get a trained checkpoint", tensor=name)


def _constant(s: Subject) -> Iterator[Hit]:
    for name, x in _summaries(s):
        if x.constant and x.matrix:
            yield Hit(
                f"every value of tensor {name} is {x.constant:g}",
                "get a trained checkpoint",
                tensor=name,
            )


def _untrained_norm(s: Subject) -> Iterator[Hit]:
    for name, x in _summaries(s):
        if "norm" in name and x.count > 1 and x.constant == 1:
            yield Hit(
                f"every gain of {name} is exactly 1: it looks as if it was never trained or never "
                "loaded",
                "check the trainer's log, or whether a converter filled it in",
                tensor=name,
            )


def _fresh(s: Subject) -> Iterator[Hit]:
    said = s.lookup("initializer_range") or s.lookup("transformer_layer_config.initializer_range")
    width = said if isinstance(said, float) else None
    for name, x in _summaries(s):
        if x.matrix and (initialiser := fresh_like(x, width)):
            yield Hit(
                f"tensor {name} looks freshly initialised: its values are spread as by "
                f"{initialiser}, deviation {x.deviation:.4g}",
                "compare it with the trainer's last step; converters fill in what they miss",
                tensor=name,
            )


RULES: tuple[Rule, ...] = (
    Rule(
        "ECT001",
        "unknown-tensor",
        "error",
        "Every tensor has a place in a known layout.",
        "vLLM refuses unknown tensors, SGLang drops them silently; a renamed tensor leaves its "
        "place uninitialised "
        "([speculators#1114](https://github.com/vllm-project/speculators/issues/1114)).",
        "`layers.0.mlp.gate.weight` for `layers.0.mlp.gate_proj.weight`",
        "Give the tensor the trainer's name, or remove it.",
    ),
    Rule(
        "ECT002",
        "tensor-missing",
        "error",
        "Every tensor the variant needs is there.",
        "vLLM and SGLang leave a missing tensor at 1.0 or uninitialised, without a word: the "
        "EAGLE-3 classes skip the loader's own check "
        "([speculators#1114](https://github.com/vllm-project/speculators/issues/1114)).",
        "no `midlayer.hidden_norm.weight`",
        "Get the whole checkpoint.",
        unread=("every tensor",),
    ),
    Rule(
        "ECT003",
        "tensor-of-wrong-shape",
        "error",
        "Every tensor has the shape the config implies.",
        "Config and weights do not belong together; loaders assert, or cut.",
        "`norm.weight [64]`, width 128",
        "Get config and weights of one checkpoint.",
        unread=("every tensor",),
    ),
    Rule(
        "ECT004",
        "tensor-of-wrong-dtype",
        "error",
        "Weights are floating point, unless a quantization_config says how they are packed.",
        "Integers are cast and computed with.",
        "`fc.weight` of dtype I8, no `quantization_config`",
        "Add the quantization_config the checkpoint was written with.",
        unread=("every tensor",),
    ),
    Rule(
        "ECT005",
        "tensor-without-place",
        "error",
        "No tensor is left over in the variant that config and tensors describe.",
        "vLLM refuses it, SGLang and TensorRT-LLM drop it: a part of what was trained is not run.",
        "`fc_norm.3.weight` beside an fc that takes 3 states",
        "Get a checkpoint whose parts fit.",
        unread=("every tensor",),
    ),
    Rule(
        "ECT006",
        "tensor-stored-twice",
        "error",
        "No two stored names are the same tensor.",
        "Loaders take whichever comes last.",
        "`midlayer.mlp.up_proj.weight` and `layers.0.mlp.up_proj.weight`",
        "Keep one of them.",
    ),
    Rule(
        "ECT007",
        "layers-with-holes",
        "error",
        "Decoder layers are numbered 0, 1, 2, ...",
        "Layers of a drafter that was cut are not found, and stay uninitialised.",
        "`layers.0.*`, `layers.2.*`",
        "Get the whole checkpoint.",
        unread=("layers",),
    ),
    Rule(
        "ECT008",
        "embedding-missing",
        "error",
        "A drafter of another width than its target has an embedding of its own.",
        "vLLM shares embeddings of equal width only; the drafter then runs on uninitialised ones.",
        "`hidden_size: 2048`, `target_hidden_size: 4096`, no `embed_tokens.weight`",
        "Get the checkpoint with embed_tokens.weight.",
        unread=("every tensor",),
    ),
    Rule(
        "ECT009",
        "torchspec-pruned-head",
        "info",
        "The file may have been pruned with TorchSpec's tool after training.",
        "That tool takes lm_head rows d2t[i] instead of i + d2t[i] (`tools/convert_to_hf.py:309`), "
        "so a head pruned that way scores the wrong tokens; the file does not show whether it was.",
        "a TorchSpec file with a reduced vocabulary",
        "Compare lm_head with the head before pruning (with --target, rule ECP006 compares it with "
        "the target's), or measure acceptance.",
        unread=("known trouble",),
    ),
    Rule(
        "ECT010",
        "modelopt-double-norm",
        "warning",
        "The file was not trained with two norms on the hidden state.",
        "ModelOpt from 0.41 on trains this layout with input_layernorm applied to the hidden state "
        "before hidden_norm (`torch/speculative/plugins/modeling_eagle.py`); no engine does.",
        "a ModelOpt file of the Hugging Face trainer from 0.41 on",
        "Measure acceptance before you serve it.",
        unread=("known trouble",),
    ),
    Rule(
        "ECT011",
        "value-not-finite",
        "error",
        "No value is NaN or infinite.",
        "One NaN makes every draft NaN: the server answers correctly and accepts nothing.",
        "`norm.weight[17] = NaN`",
        "Get a sound checkpoint.",
        check=_not_finite,
    ),
    Rule(
        "ECT012",
        "tensor-all-zero",
        "error",
        "No weight is all zeros.",
        "A zero weight passes nothing on; a buffer that was saved before training is.",
        "`fc.weight` all zeros",
        "Get a trained checkpoint.",
        check=_zero,
    ),
    Rule(
        "ECT013",
        "tensor-constant",
        "error",
        "No matrix has one value everywhere.",
        "Training leaves no such matrix; a placeholder is one.",
        "`lm_head.weight` all 0.5",
        "Get a trained checkpoint.",
        needs=("deep",),
        check=_constant,
    ),
    Rule(
        "ECT014",
        "norm-untrained",
        "warning",
        "The gains of every norm moved away from 1.",
        "Norms that a loader never filled stay at 1.0: what looks like 3.1 computes something "
        "nobody trained "
        "([SpecForge#879](https://github.com/sgl-project/SpecForge/pull/879)).",
        "`fc_norm.1.weight` all 1.0",
        "Check the trainer's log; a bfloat16 norm trained with a small learning rate may stay at 1.",
        check=_untrained_norm,
    ),
    Rule(
        "ECT015",
        "weight-looks-fresh",
        "warning",
        "No matrix looks like one that was just initialised.",
        "Converters and exporters fill in random tensors where a name does not match "
        "([speculators#1114](https://github.com/vllm-project/speculators/issues/1114), "
        "[TorchSpec#38](https://github.com/lightseekorg/TorchSpec/issues/38)).",
        "`embed_tokens.weight` drawn from N(0, 0.02)",
        "Compare it with the trainer's last step.",
        needs=("deep",),
        check=_fresh,
    ),
)
