"""Which layers are tapped: two homes in a config, two numberings, one answer or a question.

A boundary is the number of decoder layers already run (0: the embedding, N: the last output). An
output id is the zero-based layer whose output is tapped: output k is boundary k + 1. Sources:
vLLM 0.32.0 `models/interfaces.py:1577-1610`, SGLang 0.5.23 `spec_aux_hidden_state.py:185-197`.
"""

from collections.abc import Sequence

from eagleconv.drafter.facts import AuxLayers, Fact, Question
from eagleconv.drafter.layouts.layout import AuxRule
from eagleconv.errors import ConversionError, UsageError

FLAG = "--aux-layers"


def default_boundaries(layers: int) -> tuple[int, int, int]:
    """Return the taps every trainer defaults to, as boundaries: 2, n//2, n-3."""
    return 2, layers // 2, layers - 3


def numbering_by_pattern(ids: Sequence[int], layers: int | None) -> str:
    """Say in which numbering ids are a default set: `boundary`, `output`, or empty for neither.

    Without the number of layers, the set tells it itself: its last id fixes n.
    """
    if len(ids) != 3:
        return ""
    first, middle, last = ids
    for name, shift in (("boundary", 0), ("output", 1)):
        count = layers if layers is not None else last + 3 + shift
        if (first, middle, last) == tuple(b - shift for b in default_boundaries(count)):
            return name
    return ""


def parse_flag(text: str, layers: int | None, count: int) -> AuxLayers:
    """Read `--aux-layers`: boundaries separated by commas, or `default`.

    Raises:
        UsageError: It is neither.
    """
    if text == "default":
        return AuxLayers(count, default_boundaries(layers) if layers else None, "default")
    try:
        ids = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"{FLAG} {text!r} is neither `default` nor numbers separated by commas",
            f"for instance {FLAG} 2,16,29 (decoder layers already run at each tap)",
        ) from None
    return AuxLayers(len(ids), ids, "explicit")


def check(aux: AuxLayers, layers: int | None, fc_states: int | None) -> None:
    """Refuse taps that cannot be.

    Raises:
        ConversionError: Not ascending, twice, outside the target, or not as many as fc takes.
    """
    ids = aux.boundaries
    if ids is None:
        return
    shown = ", ".join(map(str, ids))
    if list(ids) != sorted(set(ids)):
        raise ConversionError(
            f"boundaries {shown} are not ascending and distinct; engines sort and merge them, and "
            "fc would read the states in another order than it was trained with",
            f"give the order fc was trained with, ascending, by {FLAG}",
        )
    if ids and (ids[0] < 0 or ids[-1] > 10_000 or (layers is not None and ids[-1] > layers)):
        raise ConversionError(
            f"boundaries {shown} leave the target, which begins at boundary 0"
            if layers is None
            else f"boundaries {shown} leave the target, which has boundaries 0 to {layers}",
            f"check the target, or give the taps by {FLAG}",
        )
    if fc_states is not None and len(ids) != fc_states:
        raise ConversionError(
            f"{len(ids)} boundaries ({shown}), but fc.weight takes {fc_states} states",
            f"give as many boundaries as fc takes by {FLAG}",
        )


def read_ids(
    top: Sequence[int] | None,
    nested: Sequence[int] | None,
    homes: Sequence[tuple[str, str]],
    rules: Sequence[tuple[str, AuxRule]],
    layers: int | None,
    count: int,
    trusted: bool,
) -> Fact | Question:
    """Decide which boundaries the ids in a config mean.

    Args:
        top: Ids at the top level, or None.
        nested: Ids inside `eagle_config`, or None.
        homes: For every possible layout, the numbering of its (top, nested) home.
        rules: For every possible layout, its name and rule.
        layers: The target's number of layers, if known.
        count: A, as fc.weight shows it.
        trusted: Whether eagleconv.json says the top level holds boundaries.

    Returns:
        A fact whose value is `AuxLayers`, or the question that stays open.
    """

    def fact(ids: Sequence[int], origin: str, why: str, key: str) -> Fact:
        return Fact(AuxLayers(len(ids), tuple(ids), "explicit"), origin, why, (key,))  # type: ignore[arg-type]

    if all(rule.unordered for _, rule in rules):
        top, nested = (None if ids is None else sorted(ids) for ids in (top, nested))
    top_key = "eagle_aux_hidden_state_layer_ids"
    nested_key = "eagle_config.eagle_aux_hidden_state_layer_ids"
    if top is None and nested is None:
        return _absent(rules, layers, count)
    if top is not None and trusted:
        return fact(top, "read", "eagleconv.json says the top level holds boundaries", top_key)
    if top is not None and nested is not None:
        if [i + 1 for i in nested] == list(top):
            why = "top level and eagle_config differ by exactly one: boundaries and outputs"
            return fact(top, "read", why, top_key)
        if list(top) != list(nested):
            return Question(
                "aux layers",
                f"Layer ids {list(top)} at the top level and {list(nested)} in eagle_config name "
                "different layers.",
                f"{FLAG} with boundaries, e.g. {FLAG} {','.join(map(str, top))}",
            )
    ids = list(top if top is not None else nested or ())
    key = top_key if top is not None else nested_key
    home = 0 if top is not None else 1
    pattern = numbering_by_pattern(ids, layers)
    numberings = {h[home] for h in homes}
    outputs = [i + 1 for i in ids]
    if layers is not None and max(ids) == layers:
        return fact(ids, "inferred", f"id {layers} is the target's last boundary", key)
    if len(numberings) == 1:
        numbering = next(iter(numberings))
        certain = all(rule.custom for _, rule in rules)
        if certain or pattern == numbering or (home == 0 and pattern != "output"):
            why = "; ".join(dict.fromkeys(rule.why for _, rule in rules))
            if pattern == numbering:
                why = f"the default set, numbered as {_words(numbering)}; {why}"
            chosen = ids if numbering == "boundary" else outputs
            return fact(chosen, "read" if certain else "inferred", why, key)
    elif pattern:
        why = f"the ids are the default set, numbered as {_words(pattern)}"
        return fact(ids if pattern == "boundary" else outputs, "inferred", why, key)
    return Question(
        "aux layers",
        f"Layer ids {ids} ({key}) can be boundaries (decoder layers already run, as vLLM reads "
        "them) or outputs of layers (as SpecForge, TorchSpec and ModelOpt write them).",
        f"{FLAG} {','.join(map(str, ids))} (boundaries) or {FLAG} {','.join(map(str, outputs))} "
        "(outputs)",
    )


def _words(numbering: str) -> str:
    return "boundaries" if numbering == "boundary" else "outputs of layers"


def _absent(
    rules: Sequence[tuple[str, AuxRule]], layers: int | None, count: int
) -> Fact | Question:
    doubtful = [(name, rule) for name, rule in rules if rule.absent == "open"]
    if doubtful or count != 3:
        why = doubtful[0][1].why if doubtful else f"fc takes {count} states, the default set has 3"
        return Question(
            "aux layers",
            "No layer ids are written, so engines tap boundaries 2, n//2, n-3; whether the drafter was "
            f"trained with those is open: {why}.",
            f"{FLAG} default, or {FLAG} with boundaries such as 2,16,29",
        )
    names = " and ".join(dict.fromkeys(name for name, _ in rules))
    why = f"no layer ids, and {names} tap boundaries 2, n//2, n-3 then"
    if layers is None:
        return Fact(AuxLayers(3, None, "default"), "default", why)
    taps = AuxLayers(3, default_boundaries(layers), "default")
    return Fact(taps, "target", f"{why}; the target has {layers} layers")
