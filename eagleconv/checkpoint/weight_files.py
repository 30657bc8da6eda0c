"""Which of the files of a directory hold the weights: a decision on names alone."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from eagleconv.errors import SourceError

SAFETENSORS_INDEX = "model.safetensors.index.json"
PICKLE_INDEX = "pytorch_model.bin.index.json"
#: Side files that hold weights, in the order they are looked for.
SIDE_WEIGHTS = ("training_state.pt", "draft_model.pt")
#: Side files that describe weights, in the order they are looked for.
SIDE_META = ("eagle_meta.pt", "eagle3_meta.pt")

_SAFETENSORS_SHARD = re.compile(r"model-(\d+)-of-(\d+)\.safetensors")
_PICKLE_SHARD = re.compile(r"pytorch_model-(\d+)-of-(\d+)\.bin")
#: Beginnings of names of safetensors files that are no weights of a whole model in the Hub's names.
_NOT_WEIGHTS = ("adapter_model", "consolidated", "optimizer", "scheduler", "random_states")
_EXPECTED = (
    "expected model.safetensors or its index and shards, pytorch_model.bin, training_state.pt "
    "or draft_model.pt"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The weight files of a checkpoint.

    Attributes:
        form: `safetensors`, `pickle` or `side files`.
        files: Files with tensors; empty where `index` names them.
        index: Index file, or empty.
        notes: What a reader should know about the choice.
    """

    form: str
    files: tuple[str, ...]
    index: str = ""
    notes: tuple[str, ...] = ()


def choose(names: Collection[str], where: str) -> Choice:
    """Choose the weight files.

    Args:
        names: Names of the files at the top of the checkpoint.
        where: The checkpoint, for the error.

    Returns:
        The first that is there: an index of safetensors files, `model.safetensors`, its shards,
        the only other safetensors file, the same of `pytorch_model.bin`, a trainer's side file.

    Raises:
        SourceError: There are none, a shard is missing, or several files could be it.
    """
    choice = _safetensors(names, where)
    if choice is not None:
        pickles = sorted(n for n in names if n.startswith("pytorch_model") and n.endswith(".bin"))
        if pickles:
            note = f"{', '.join(pickles)} not read: safetensors weights are beside it"
            choice = Choice(choice.form, choice.files, choice.index, (*choice.notes, note))
        return choice
    choice = _pickle(names, where)
    if choice is not None:
        return choice
    for name in SIDE_WEIGHTS:
        if name in names:
            return Choice("side files", (name,))
    raise SourceError(f"{where} holds no weights{_near_misses(names)}", _EXPECTED)


def _safetensors(names: Collection[str], where: str) -> Choice | None:
    if SAFETENSORS_INDEX in names:
        return Choice("safetensors", (), SAFETENSORS_INDEX)
    if "model.safetensors" in names:
        shards = sorted(name for name in names if _SAFETENSORS_SHARD.fullmatch(name))
        unread = f"{', '.join(shards)} not read: model.safetensors is beside them"
        return Choice("safetensors", ("model.safetensors",), notes=(unread,) if shards else ())
    shards = _shards(names, _SAFETENSORS_SHARD, where)
    if shards:
        note = f"{SAFETENSORS_INDEX} is missing: the {len(shards)} shards were read without it"
        return Choice("safetensors", tuple(shards), notes=(note,))
    others = sorted(
        name
        for name in names
        if name.endswith(".safetensors") and not name.startswith(_NOT_WEIGHTS)
    )
    if len(others) > 1:
        raise SourceError(
            f"{where} holds several safetensors files, none the model's: {', '.join(others)}",
            "put the one that holds the weights into a directory of its own with config.json",
        )
    if others:
        note = (
            f"weights are in {others[0]}, which engines that look for model.safetensors do not find"
        )
        return Choice("safetensors", (others[0],), notes=(note,))
    return None


def _pickle(names: Collection[str], where: str) -> Choice | None:
    if PICKLE_INDEX in names:
        return Choice("pickle", (), PICKLE_INDEX)
    if "pytorch_model.bin" in names:
        return Choice("pickle", ("pytorch_model.bin",))
    shards = _shards(names, _PICKLE_SHARD, where)
    if shards:
        note = f"{PICKLE_INDEX} is missing: the {len(shards)} shards were read without it"
        return Choice("pickle", tuple(shards), notes=(note,))
    return None


def _shards(names: Collection[str], pattern: re.Pattern[str], where: str) -> list[str]:
    """Return the shards in order, all of one set, none missing."""
    sets: dict[str, dict[int, str]] = {}
    for name in sorted(names):
        if match := pattern.fullmatch(name):
            sets.setdefault(match[2], {})[int(match[1])] = name
    if len(sets) > 1:
        totals = ", ".join(f"of-{total}" for total in sets)
        raise SourceError(
            f"{where} holds shards of several sets ({totals}) and no index", "remove the stale set"
        )
    for total, found in sets.items():
        for number in range(1, int(total) + 1):
            if number not in found:
                missing = _renumber(next(iter(found.values())), pattern, number)
                raise SourceError(f"{where}: shard {missing} is missing", "download it again")
        if len(found) != int(total):
            extra = ", ".join(
                name for number, name in found.items() if not 1 <= number <= int(total)
            )
            raise SourceError(
                f"{where}: {extra} is no shard of {int(total)}", "remove it if it is stale"
            )
        return [found[number] for number in sorted(found)]
    return []


def _renumber(name: str, pattern: re.Pattern[str], number: int) -> str:
    match = pattern.fullmatch(name)
    assert match is not None, "the name was found with this pattern"
    first, last = match.span(1)
    return f"{name[:first]}{number:0{last - first}d}{name[last:]}"


def _near_misses(names: Collection[str]) -> str:
    near = sorted(
        name for name in names if name.endswith((".safetensors", ".bin", ".pt", ".pth", ".gguf"))
    )
    return f" that are read here (found {', '.join(near[:4])})" if near else ""
