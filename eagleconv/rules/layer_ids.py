"""Rules about the layers of the target that are tapped."""

from collections.abc import Iterator

from eagleconv.rules.rule import Hit, Rule
from eagleconv.rules.subject import Subject


def _ids_unwritten(s: Subject) -> Iterator[Hit]:
    aux = s.value("aux")
    if aux is None or aux.rule != "default" or s.fact("aux").origin == "open" or s.ids_written():
        return
    taps = ", ".join(map(str, aux.boundaries)) if aux.boundaries else "2, n//2, n-3"
    yield Hit(
        f"no layer ids are written; engines tap boundaries {taps} of their target, which is what "
        "was trained",
        "run upgrade --target, which writes them",
        key="eagle_aux_hidden_state_layer_ids",
    )


RULES: tuple[Rule, ...] = (
    Rule(
        "ECC031",
        "layer-ids-open",
        "warning",
        "Which of the target's layers are tapped is known.",
        "Two numberings of layer ids are in use; off by one costs acceptance silently "
        "([sglang#25454](https://github.com/sgl-project/sglang/pull/25454)), and without ids "
        "engines guess (2, n//2, n-3) without a log line "
        "([vllm#50170](https://github.com/vllm-project/vllm/pull/50170): 1.21 % acceptance "
        "instead of 58.9 %).",
        '`"eagle_config": {"eagle_aux_hidden_state_layer_ids": [3, 17, 30]}` in a file of no '
        "certain trainer",
        "Say which layers it was trained with; `--target` settles some of it.",
        "--aux-layers",
        unread=("taps",),
    ),
    Rule(
        "ECC032",
        "layer-ids-impossible",
        "error",
        "Layer ids are ascending, distinct, inside the target and as many as fc takes.",
        "Engines sort and merge them (vLLM `models/interfaces.py:1578`), so fc reads the states in "
        "another order than it was trained with.",
        '`"eagle_aux_hidden_state_layer_ids": [29, 2, 16]`',
        "Give the order fc was trained with, ascending.",
        "--aux-layers",
        unread=("taps",),
    ),
    Rule(
        "ECC033",
        "layer-ids-no-list",
        "error",
        "Layer ids are a list of integers.",
        "SGLang swallows any error there and takes the default taps "
        "(`spec_aux_hidden_state.py:185-196`).",
        '`"eagle_aux_hidden_state_layer_ids": "2,16,29"`',
        "Write a list of integers.",
        unread=("taps",),
    ),
    Rule(
        "ECC034",
        "layer-ids-unwritten",
        "info",
        "Layer ids are written, even where the trainer uses the default ones.",
        "Engines take (2, n//2, n-3) of *their* target then; another rule in a newer engine or a "
        "per-target override changes the taps silently "
        "([vllm#50170](https://github.com/vllm-project/vllm/pull/50170)).",
        "no `eagle_aux_hidden_state_layer_ids`",
        "Write them.",
        "upgrade --target",
        check=_ids_unwritten,
        unread=("taps",),
    ),
)
