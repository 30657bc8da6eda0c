"""The weights level of a match: recorded rows, or whole files, against the target's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from eagleconv.target.compare_weights import RowAnswer, compare_recorded, compare_with_target
from eagleconv.target.fingerprint import Fingerprint
from eagleconv.target.verdict import Level, Verdict
from eagleconv.target.view import TargetView

_NAME = "weights"
#: Schemes that fold scales of the inputs into norms and neighbouring matrices before they quantise
#: (AWQ, arXiv:2306.00978 section 3.2; SmoothQuant, arXiv:2211.10438 section 4).
_FOLDING = ("awq", "smooth")


def compare_weights(
    recorded: Fingerprint | None, target: Fingerprint, view: TargetView | None
) -> Level:
    """Compare what a drafter records of its target's weights with the target's."""
    if recorded is None or recorded.weights is None:
        why = "the drafter records none of its target's"
        if recorded is not None:
            why = f"none are recorded: {recorded.missing.get(_NAME, 'none could be read')}"
        return Level(_NAME, "unknown", (why,))
    files = recorded.files
    if files and files == target.files:
        text = f"all {len(files)} weight files have the recorded sha256"
        return Level(_NAME, "equal", (text,), evidence=True)
    if view is None:
        if target.weights is None:
            return Level(_NAME, "unknown", (_missing(target),))
        answers = compare_recorded(recorded.weights, target.weights)
    elif view.weights is None or view.weights.form != "safetensors":
        return Level(_NAME, "unknown", (_missing(target),))
    else:
        answers = compare_with_target(recorded.weights, view.weights)
    return judge(answers, recorded.quantization, target.quantization)


def _missing(target: Fingerprint) -> str:
    return target.missing.get(_NAME, "the target's cannot be read")


def judge(answers: Sequence[RowAnswer], ours: str, theirs: str) -> Level:
    """Return what the rows say together.

    Args:
        answers: One for each recorded row that could be looked for.
        ours: Quantisation of the recorded target; empty for none.
        theirs: Quantisation of the target.
    """
    by_tensor: dict[str, list[RowAnswer]] = {}
    for answer in answers:
        by_tensor.setdefault(answer.name, []).append(answer)
    kinds: dict[str, list[RowAnswer]] = {}
    for found in by_tensor.values():
        worst = max(found, key=lambda a: (_ORDER.index(a.answer), a.change))
        kinds.setdefault(worst.answer, []).append(worst)
    different = kinds.get("different", [])
    unread = kinds.get("unreadable", [])
    looked = len(by_tensor) - len(unread)
    if different and any(word in theirs.lower() for word in _FOLDING):
        folded = [a for a in different if a.name.startswith("layers.")]
        if len(folded) == len(different) and unread:
            text = f"{theirs} folds scales into norms and matrices: {len(folded)} differ"
            return _partly(looked - len(folded), len(unread) + len(folded), theirs, (text,))
    if different:
        return Level(_NAME, "different", _differences(different, looked, len(unread)))
    if not looked:
        return Level(_NAME, "unknown", (f"none of {len(unread)} recorded tensors can be read",))
    quantised = kinds.get("quantised", [])
    sentences = []
    if quantised:
        schemes = ", ".join(sorted({a.scheme for a in quantised}))
        sentences.append(
            f"{len(quantised)} of {looked} tensors are the recorded ones rounded by {schemes}"
        )
    if kinds.get("rounded"):
        sentences.append(
            f"{len(kinds['rounded'])} of {looked} tensors are equal within the rounding of their "
            "dtype"
        )
    if kinds.get("identical"):
        sentences.append(
            f"{len(kinds['identical'])} of {looked} tensors are identical in the rows read"
        )
    if unread:
        return _partly(looked, len(unread), theirs, tuple(sentences))
    verdict: Verdict = "harmless" if quantised or ours != theirs else "equal"
    return Level(_NAME, verdict, tuple(sentences), evidence=verdict == "equal")


#: From best to worst.
_ORDER = ("identical", "unreadable", "rounded", "quantised", "different")


def _partly(looked: int, unread: int, scheme: str, sentences: tuple[str, ...]) -> Level:
    why = f"stored as {scheme}" if scheme else "not there under their names"
    text = f"{unread} recorded tensors cannot be compared: {why}"
    return Level(_NAME, "harmless" if looked else "unknown", (*sentences, text))


def _differences(different: list[RowAnswer], looked: int, unread: int) -> tuple[str, ...]:
    worst = max(different, key=lambda a: a.change)
    first = different[0]
    out = [
        f"{len(different)} of {looked} tensors differ, first {first.name} row {first.index} (by "
        f"{first.change:.2g} of its largest value)"
    ]
    if worst.name != first.name:
        out[0] += f", most {worst.name} ({worst.change:.2g})"
    parts = Counter(a.name.rpartition(".")[0].rpartition(".")[2] for a in different)
    if len(parts) > 1:
        out.append("by part: " + ", ".join(f"{part} {n}" for part, n in parts.most_common(6)))
    if unread:
        out.append(f"{unread} recorded tensors cannot be compared")
    return tuple(out)
