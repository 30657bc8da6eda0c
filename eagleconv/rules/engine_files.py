"""A checkpoint as an engine finds it."""

import os

from eagleconv.checkpoint.checkpoint import Checkpoint
from eagleconv.drafter import vocabulary
from eagleconv.engines.simulate import Files
from eagleconv.rules.subject import Subject

#: Findings of the reader that make the stored map, read as offsets, another one than trained.
_WRONG_MAPS = ("ECV002", "ECV003", "ECV004", "ECV010")
#: Names of questions that are not names of facts.
_FACT_OF = {
    "aux layers": "aux",
    "rope theta": "rope",
    "rope scaling": "rope",
    "partial rotary factor": "rope",
    "attention window": "window",
    "mask token": "mask_token_id",
}


def files_of(s: Subject) -> Files:
    """Return the directory as an engine finds it, and what was trained."""
    drafter = s.drafter
    derived = drafter.derived.get("d2t")
    wrong = next((t.message for t in drafter.traps if t.code in _WRONG_MAPS), "")
    if derived is not None and "d2t" in drafter.tensors:
        wrong = "it reads d2t as offsets, and it holds absolute ids"
    known = {n: f for n, f in drafter.facts.items() if f.origin != "open"}
    return Files(
        s.checkpoint.config,
        {name: t.shape for name, t in s.checkpoint.tensors.items()},
        {name: fact.value for name, fact in known.items()},
        tuple(_FACT_OF.get(q.fact, q.fact) for q in drafter.questions),
        derived is not None and not any(derived.data),
        wrong,
        s.target.facts if s.target else None,
        bool(s.checkpoint.config.get("quantization_config")),
        any(t.code == "ECC016" for t in drafter.traps),
        _not_loadable(s.checkpoint),
        _map_ids(s),
    )


def _map_ids(s: Subject) -> tuple[int, ...]:
    stored = s.drafter.tensors.get("d2t")
    info = s.checkpoint.tensors[stored] if stored else None
    if info is None or info.dtype not in vocabulary.INTEGERS:
        return ()
    return tuple(
        vocabulary.target_ids(vocabulary.integers(s.checkpoint.read(info.name), info.dtype, "d2t"))
    )


def _not_loadable(checkpoint: Checkpoint) -> str:
    if checkpoint.form == "side files":
        return "these are a trainer's own files"
    if checkpoint.root and not os.path.exists(os.path.join(checkpoint.source, "config.json")):
        return "config.json and weights are in a directory inside this one"
    return ""
