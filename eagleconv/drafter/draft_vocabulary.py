"""The draft vocabulary of a drafter, its map checked value by value."""

from typing import Any

from eagleconv.drafter import vocabulary
from eagleconv.drafter.contradiction import Contradiction
from eagleconv.drafter.declared import DerivedTensor
from eagleconv.drafter.facts import Fact, Trap
from eagleconv.drafter.reading import Evidence


def read_vocabulary(r: Evidence) -> dict[str, Fact]:
    """Decide V, D and the map, with its values checked."""
    s, c = r.shapes, r.checkpoint
    said_v, v_key = r.get("vocab_size")
    said_d, d_key = r.get("draft_vocab_size")
    sized = {
        k: s[n][0] for k, n in (("t2d", "t2d"), ("embed_tokens", "embed_tokens.weight")) if n in s
    }
    shown = ", ".join(f"{k} {n}" for k, n in sized.items())
    v = next(iter(sized.values()), said_v)
    if v is None and r.target is not None:
        v = r.target.vocab_size
    if v is None:
        raise Contradiction(
            "ECC007",
            r.where,
            "nothing says the target's vocabulary",
            "add vocab_size",
            key="vocab_size",
        )
    if len(set(sized.values())) > 1 or (said_v is not None and said_v != v):
        r.refuse(
            Contradiction(
                "ECV007",
                r.where,
                f"vocabulary sizes disagree: config.json {said_v}, {shown}",
                "correct vocab_size, or get the tensors that belong to it",
                key=v_key,
            )
        )
    head = s.get("lm_head.weight")
    d = head[0] if head else s["d2t"][0] if "d2t" in s else said_d or v
    if said_d is not None and said_d != d:
        r.refuse(
            Contradiction(
                "ECV007",
                r.where,
                f"config.json says {d_key} {said_d}, lm_head or d2t has {d} rows",
                "correct draft_vocab_size",
                key=d_key,
            )
        )
    full = d == v
    out = {
        "vocab_size": Fact(v, "read", shown or "config.json", (v_key,) if v_key else ()),
        "draft_vocab_size": Fact(
            d, "read", "lm_head rows" if head else "config.json", (d_key,) if d_key else ()
        ),
        "vocabulary": Fact("full" if full else "reduced", "read", f"D = {d}, V = {v}"),
        "own_head": Fact(head is not None, "read", "lm_head.weight" if head else "no lm_head"),
        "own_embedding": Fact(
            "embed_tokens.weight" in s,
            "read",
            "embed_tokens.weight" if "embed_tokens.weight" in s else "no embed_tokens",
        ),
    }
    if not full and head is None:
        r.refuse(
            Contradiction(
                "ECV008",
                r.where,
                f"a draft vocabulary of {d} of {v} needs its own lm_head.weight",
                "engines would cut the target's head to the first rows, silently",
                tensor="lm_head.weight",
            )
        )
    mask = None
    if "t2d" in s:
        kind = c.tensors[r.tensors["t2d"]].dtype
        if kind not in ("BOOL", "U8", "I8"):
            raise Contradiction(
                "ECV011",
                r.where,
                f"t2d has dtype {kind}, expected bool",
                "store it as bool",
                tensor=r.tensors["t2d"],
            )
        mask = c.read(r.tensors["t2d"])
    if "d2t" in s:
        info = c.tensors[r.tensors["d2t"]]
        if info.dtype not in vocabulary.INTEGERS:
            raise Contradiction(
                "ECV011",
                r.where,
                f"d2t has dtype {info.dtype}; a vocabulary map holds integers",
                "store it as int64",
                tensor=r.tensors["d2t"],
            )
        values = vocabulary.integers(c.read(r.tensors["d2t"]), info.dtype, "d2t")
        if full:
            drop_full_map(r, list(values), mask)
        else:
            check_map(r, values, mask, v, s["d2t"])
    elif full and mask is not None:
        drop_full_map(r, [0] * d, mask)
    elif not full:
        derive_map(r, mask, d)
    return out


def drop_full_map(r: Evidence, values: list[int], mask: bytes | None) -> None:
    """Drop a map that says nothing, with the proof; vLLM refuses d2t at full vocabulary."""
    if any(values) or (mask is not None and not all(mask)):
        r.refuse(
            Contradiction(
                "ECV010",
                r.where,
                "the draft vocabulary is full, but d2t or t2d is no identity",
                "the map and lm_head do not belong together",
                tensor=r.tensors.get("d2t", ""),
            )
        )
    for name in ("d2t", "t2d"):
        if name in r.tensors:
            r.dropped[r.tensors[name]] = (
                f"full vocabulary: {name} is the identity (every value checked)"
            )


def check_map(r: Evidence, values: Any, mask: bytes | None, v: int, shape: tuple[int, ...]) -> None:
    """Check d2t against t2d and V; absolute ids become offsets where that is proven."""
    problem = vocabulary.map_problem(values, mask, v)
    if (
        problem is None
        and "lm_head.weight" in r.shapes
        and len(values) != (rows := r.shapes["lm_head.weight"][0])
    ):
        problem = "ECV004", f"it maps {len(values)} draft ids, lm_head has {rows} rows"
    declared = r.declared.d2t_meaning
    absolute = declared == "absolute" or (
        declared is None and problem is not None and vocabulary.are_absolute(values, mask, v)
    )
    if absolute:
        ids = list(values)
        if any(not 0 <= t < v for t in ids) or len(set(ids)) != len(ids):
            raise Contradiction(
                "ECV002",
                r.where,
                f"d2t holds no distinct absolute ids below {v}",
                tensor=r.tensors["d2t"],
            )
        why = "declared" if declared else "they are exactly the ids t2d marks"
        r.derived["d2t"] = DerivedTensor(
            "I64", shape, vocabulary.offsets_of(ids), f"absolute ids made offsets ({why})"
        )
        return
    side = r.checkpoint.side_data.get("selected_token_ids")
    if not problem and side is not None and vocabulary.target_ids(values) != list(side):
        problem = (
            "ECV004",
            "it maps to other ids than selected_token_ids of the side file",
        )
    if problem:
        hint = "get the map that belongs to this lm_head"
        if mask is None and all(0 <= x < v for x in values) and len(set(values)) == len(values):
            hint = "if d2t holds absolute ids, say so with --d2t-meaning absolute"
        r.refuse(
            Contradiction(problem[0], r.where, f"d2t: {problem[1]}", hint, tensor=r.tensors["d2t"])
        )
    if not any(values) and mask is None:
        r.traps.append(
            Trap(
                "ECV006",
                "d2t is all zeros: draft ids are the first target ids, which is also what an "
                "uninitialised buffer looks like",
                "check that the trainer kept the first ids",
                tensor=r.tensors["d2t"],
            )
        )


def derive_map(r: Evidence, mask: bytes | None, d: int) -> None:
    """Rebuild d2t from t2d or from a trainer's side file; refuse to invent it."""
    side = r.checkpoint.side_data
    ids: list[int] | None = None
    if side.get("selected_token_ids") is not None:
        ids, why = list(side["selected_token_ids"]), "selected_token_ids of the side file"
    elif mask is not None:
        ids, why = [i for i, byte in enumerate(mask) if byte], "the ids t2d marks, ascending"
    if ids is None:
        r.refuse(
            Contradiction(
                "ECV001",
                r.where,
                "a reduced draft vocabulary without d2t",
                "engines would map draft ids to the first target ids, silently; get the map from "
                "the trainer (ModelOpt's Megatron export never writes it)",
                tensor="d2t",
            )
        )
        return
    if len(ids) != d:
        raise Contradiction("ECV004", r.where, f"{why}: {len(ids)} ids for {d} rows of lm_head")
    r.derived["d2t"] = DerivedTensor("I64", (d,), vocabulary.offsets_of(ids), why)
