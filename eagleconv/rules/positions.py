"""Rules about rotary positions, trained length and attention windows."""

from collections.abc import Iterator

from eagleconv.rules.rule import Hit, Rule
from eagleconv.rules.subject import Subject


def _too_short(s: Subject) -> Iterator[Hit]:
    length, held = s.context_length, s.value("max_position_embeddings")
    if length is not None and held is not None and held < length:
        for name, old in s.positions_by_engine():
            yield Hit(
                f"max_position_embeddings is {held}, the planned context {length}: "
                + (
                    f"{name} rotates past its cache: garbage, or a device assert when compiled"
                    if old
                    else f"{name or 'engines'} may stop drafting past it, silently"
                ),
                f"write max_position_embeddings {length} if the drafter was trained that long",
                key="max_position_embeddings",
                engine=name,
                severity="error" if old else None,
            )


def _shorter_than_target(s: Subject) -> Iterator[Hit]:
    held, target = s.value("max_position_embeddings"), s.target_positions()
    if held is not None and target is not None and held < target and s.context_length is None:
        yield Hit(
            f"max_position_embeddings is {held}, the target's {target}: vLLM's V1 runner stops "
            "drafting past the drafter's own length, and SGLang refuses longer requests",
            "give --context-length to check the length you serve",
            key="max_position_embeddings",
        )


def _yarn_length(s: Subject) -> Iterator[Hit]:
    rope = s.value("rope")
    if rope is None or not rope.scaling or "factor" not in rope.scaling:
        return
    original = rope.scaling.get("original_max_position_embeddings")
    held = s.value("max_position_embeddings")
    if original and held and held > original * rope.scaling["factor"] * 1.01:
        yield Hit(
            f"rope scaling reaches {original} x {rope.scaling['factor']:g} positions, "
            f"max_position_embeddings is {held}",
            "check which of the three was trained",
            key="rope_scaling",
        )


_SPELLING = (
    "A non-empty rope_scaling *replaces* rope_parameters in transformers 5, while SGLang prefers "
    "rope_parameters; a base in only one of them becomes 10000 to the other reader "
    "([Automodel#2920](https://github.com/NVIDIA-NeMo/Automodel/pull/2920), "
    "[speculators#574](https://github.com/vllm-project/speculators/pull/574))."
)

RULES: tuple[Rule, ...] = (
    Rule(
        "ECR002",
        "rope-base-by-version",
        "warning",
        "The rope base written is the one the trainer's version rotated with.",
        "SpecForge rotated with 10000 whatever the config said before 2025-10-30 and from "
        "2026-06-27 to 2026-07-17; the file does not show its version.",
        "a SpecForge file with `rope_theta: 500000`",
        "If it was trained then, say so.",
        "--rope-theta 10000",
        unread=("known trouble",),
    ),
    Rule(
        "ECR003",
        "rope-open",
        "warning",
        "Base, scaling and share of the rotary positions are known.",
        "Trainers are known to write rope keys they do not rotate with, and two spellings exist. "
        + _SPELLING,
        '`"rope_theta": 500000, "rope_parameters": {"rope_theta": 10000}`',
        "Say what it was trained with.",
        "--rope-theta, --rope-scaling, --partial-rotary-factor",
        unread=("rope",),
    ),
    Rule(
        "ECR004",
        "context-longer-than-positions",
        "warning",
        "The drafter has as many positions as the context that is planned (--context-length).",
        "vLLM before the fix of July 2026 ran off its rotary cache: a device assert when compiled, "
        "garbage in eager mode "
        "([vllm#48894](https://github.com/vllm-project/vllm/issues/48894), "
        "[vllm#49343](https://github.com/vllm-project/vllm/pull/49343)); its V1 runner still stops "
        "drafting past the drafter's length.",
        '`"max_position_embeddings": 2048`, `--context-length 32768`',
        "Write the length it was trained for.",
        needs=("context length",),
        check=_too_short,
        unread=("positions",),
    ),
    Rule(
        "ECR005",
        "positions-below-target",
        "info",
        "The drafter has as many positions as its target.",
        "Drafting stops past the drafter's length in vLLM's V1 runner "
        "(`gpu_model_runner.py:673-677`); a drafter trained on short texts is worse past them.",
        '`"max_position_embeddings": 2048` beside a target of 131072',
        "Serve with a context it was trained for, or accept the loss past it.",
        needs=("target",),
        check=_shorter_than_target,
        unread=("positions",),
    ),
    Rule(
        "ECR006",
        "modelopt-injected-rope",
        "info",
        "ModelOpt's exporter did not add a rope scaling.",
        "ModelOpt from 0.44 on trains with base 10000 and no scaling, and injects YaRN (factor 32) "
        "on export by design "
        "([Model-Optimizer#917](https://github.com/NVIDIA/Model-Optimizer/pull/917), "
        "[Model-Optimizer#1238](https://github.com/NVIDIA/Model-Optimizer/pull/1238)): rope unlike "
        "the target's is legal.",
        "a ModelOpt file with `rope_type: yarn`",
        "Nothing, unless the target is served with short contexts only.",
        unread=("known trouble",),
    ),
    Rule(
        "ECR007",
        "scaling-below-positions",
        "warning",
        "original_max_position_embeddings times factor reaches max_position_embeddings.",
        "One of the three was not trained "
        "([Model-Optimizer#917](https://github.com/NVIDIA/Model-Optimizer/pull/917)).",
        "`factor: 4`, `original_max_position_embeddings: 4096`, `max_position_embeddings: 131072`",
        "Check which of the three was trained.",
        check=_yarn_length,
        unread=("rope", "positions"),
    ),
    Rule(
        "ECW001",
        "window-open",
        "warning",
        "Whether the drafter was trained with an attention window is known.",
        "Trainers copy the target's layer_types and sliding_window without using them; vLLM honours "
        "them, SGLang ignores them.",
        '`"layer_types": ["sliding_attention"]` in a SpecForge file',
        "Say what it was trained with.",
        "--attention-window",
        unread=("attention window",),
    ),
)
