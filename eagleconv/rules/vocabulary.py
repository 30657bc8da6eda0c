"""Rules about the draft vocabulary and its map."""

from collections.abc import Iterator

from eagleconv.rules.rule import Hit, Rule
from eagleconv.rules.subject import Subject

_OFFSETS = (
    "vLLM and SGLang map draft id i to target id i + d2t[i] (`models/llama_eagle3.py` of both) and "
    "compare it with nothing"
)


def _absolute(s: Subject) -> Iterator[Hit]:
    derived = s.drafter.derived.get("d2t")
    if derived is not None and derived.reason.startswith("absolute"):
        yield Hit(
            f"d2t holds target ids where offsets belong: {derived.reason}",
            "run upgrade, which writes offsets",
            tensor=s.drafter.tensors.get("d2t", "d2t"),
        )


def _derived(s: Subject) -> Iterator[Hit]:
    derived = s.drafter.derived.get("d2t")
    if derived is None or derived.reason.startswith("absolute"):
        return
    yield Hit(
        f"there is no d2t among the weights; it follows from {derived.reason}",
        "run upgrade, which writes it",
        tensor="d2t",
    )


def _identity(s: Subject) -> Iterator[Hit]:
    stored = s.drafter.tensors.get("d2t")
    if stored is not None and stored in s.drafter.dropped:
        yield Hit(
            f"the draft vocabulary is full, and {stored} is stored all the same",
            "run upgrade, which leaves it out",
            tensor=stored,
        )


RULES: tuple[Rule, ...] = (
    Rule(
        "ECV001",
        "map-missing",
        "error",
        "A reduced draft vocabulary needs a map from draft ids to target ids: d2t, t2d, or a "
        "trainer's side file.",
        "Engines allocate zeros for a missing d2t and so map draft ids to the first target ids: "
        "the server answers correctly and accepts nothing "
        "([verl-SpeCo#66](https://github.com/verl-project/verl-SpeCo/pull/66), "
        "[Automodel#2447](https://github.com/NVIDIA-NeMo/Automodel/pull/2447)).",
        "`lm_head.weight [32000, 4096]`, `vocab_size: 128256`, no tensor `d2t`",
        "Get the map from the trainer. ModelOpt's Megatron export never writes it.",
        unread=("draft vocabulary",),
    ),
    Rule(
        "ECV002",
        "map-leaves-vocabulary",
        "error",
        "Every target id i + d2t[i] lies in the target's vocabulary.",
        f"{_OFFSETS}; an id outside raises an index error at the first draft, or is silently "
        "another token ([mblt-model-zoo#110](https://github.com/mobilint/mblt-model-zoo/pull/110)).",
        "`d2t[5] = 160` with a vocabulary of 160",
        "Get the map that belongs to this lm_head; if d2t holds absolute ids, upgrade makes them "
        "offsets.",
        "--d2t-meaning absolute",
        unread=("draft vocabulary",),
    ),
    Rule(
        "ECV003",
        "map-not-injective",
        "error",
        "No two draft ids map to the same target id.",
        f"{_OFFSETS}; of two draft ids with one target, the second overwrites the first's logit "
        "([mblt-model-zoo#110](https://github.com/mobilint/mblt-model-zoo/pull/110)).",
        "`d2t[4] = 1, d2t[5] = 0`: both are target id 5",
        "Get the map that belongs to this lm_head.",
        "--d2t-meaning absolute",
        unread=("draft vocabulary",),
    ),
    Rule(
        "ECV004",
        "maps-disagree",
        "error",
        "d2t, t2d and the trainer's side file select the same target ids, as many as lm_head has "
        "rows.",
        "A map cached for another vocabulary size scores wrong tokens without an error "
        "([SpecForge#602](https://github.com/sgl-project/SpecForge/pull/602), "
        "[speculators#1081](https://github.com/vllm-project/speculators/pull/1081)).",
        "`lm_head.weight [64, 256]`, t2d with 48 marks",
        "Get the map that belongs to this lm_head.",
        unread=("draft vocabulary",),
    ),
    Rule(
        "ECV005",
        "map-holds-absolute-ids",
        "error",
        "d2t holds offsets, not target ids. Absolute ids are recognised where t2d proves them.",
        f"{_OFFSETS}. TensorRT-Edge-LLM and GGUF files store absolute ids; read as offsets they "
        "raise an index error at the first draft, or propose other tokens.",
        "`d2t = [3, 7, 9]` beside a t2d that marks 3, 7 and 9",
        "Write offsets.",
        "upgrade (it rewrites d2t, and says so)",
        check=_absolute,
        unread=("draft vocabulary",),
    ),
    Rule(
        "ECV006",
        "map-all-zero",
        "warning",
        "d2t is all zeros and no t2d says why.",
        "That is a legal map to the first target ids, and also what an uninitialised buffer looks "
        "like ([Automodel#2447](https://github.com/NVIDIA-NeMo/Automodel/pull/2447)).",
        "`d2t = [0, 0, 0, ...]`, 32000 of 128256",
        "Check that the trainer kept the first ids.",
        unread=("draft vocabulary",),
    ),
    Rule(
        "ECV007",
        "vocabulary-sizes-disagree",
        "error",
        "vocab_size, draft_vocab_size, t2d, embed_tokens, lm_head and d2t agree on V and D.",
        "Head rows that do not belong to the map score wrong tokens "
        "([SpecForge#139](https://github.com/sgl-project/SpecForge/issues/139), "
        "[SpecForge#602](https://github.com/sgl-project/SpecForge/pull/602)).",
        "`draft_vocab_size: 64`, `lm_head.weight [48, 256]`",
        "Correct the key, or get the tensors that belong together.",
        unread=("draft vocabulary",),
    ),
    Rule(
        "ECV008",
        "reduced-vocabulary-without-head",
        "error",
        "A reduced draft vocabulary has an lm_head of its own.",
        "vLLM shares the target's head then and cuts its logits to the first rows: draft id i is "
        "scored as target row i, then mapped through d2t (`layers/logits_processor.py:198`).",
        "`draft_vocab_size: 32000`, a d2t, no `lm_head.weight`",
        "Get the checkpoint with its lm_head.",
        unread=("draft vocabulary",),
    ),
    Rule(
        "ECV009",
        "identity-map-at-full-vocabulary",
        "info",
        "At full vocabulary no d2t is stored.",
        "vLLM has no parameter for it then and refuses the file; other engines ignore it.",
        "`draft_vocab_size` = `vocab_size`, d2t all zeros",
        "Leave d2t and t2d out.",
        "upgrade (it proves every value and drops both)",
        check=_identity,
        unread=("draft vocabulary",),
    ),
    Rule(
        "ECV010",
        "full-map-not-identity",
        "error",
        "At full vocabulary the map, if stored, is the identity.",
        "Another map there means that lm_head and map do not belong together.",
        "`draft_vocab_size` = `vocab_size`, `d2t[7] = 3`",
        "Get the map that belongs to this lm_head.",
        unread=("draft vocabulary",),
    ),
    Rule(
        "ECV011",
        "map-of-wrong-dtype",
        "error",
        "d2t holds integers, t2d booleans.",
        "Loaders cast what they find; a float map is rounded, a bfloat16 one merges ids above 256.",
        "`d2t` of dtype BF16",
        "Store d2t as int64 and t2d as bool.",
        unread=("draft vocabulary",),
    ),
    Rule(
        "ECV012",
        "map-only-beside-weights",
        "error",
        "d2t itself is among the weights, not only t2d or a trainer's side file it follows from.",
        "vLLM and SGLang ignore t2d and never read side files: they map draft ids to the first "
        "target ids ([Automodel#2447](https://github.com/NVIDIA-NeMo/Automodel/pull/2447)).",
        "`selected_token_ids` in eagle_meta.pt, no tensor `d2t`",
        "Write d2t.",
        "upgrade (it derives d2t and marks it derived)",
        check=_derived,
        unread=("draft vocabulary",),
    ),
    Rule(
        "ECV014",
        "mask-token-open",
        "warning",
        "A parallel drafter (P-EAGLE) says its mask token id.",
        "vLLM refuses to start without mask_token_id, pard_token or ptd_token_id; SpecForge never "
        "writes one, and a wrong one drafts from the wrong embedding.",
        "`mask_hidden` among the tensors, no `mask_token_id`",
        "Declare the id the drafter was trained with.",
        "--mask-token-id",
        unread=("mask token",),
    ),
    Rule(
        "ECV015",
        "mask-token-outside",
        "error",
        "The mask token id lies in the target's vocabulary.",
        "The embedding has no row for another id.",
        "`mask_token_id: 160` with a vocabulary of 160",
        "Give the id the drafter was trained with.",
        "--mask-token-id",
        unread=("mask token",),
    ),
)
