"""Rotary positions: three spellings in a config, and trainers that ignored them.

Precedence in transformers 5.19 (`modeling_rope_utils.py:752-781`, run): a non-empty `rope_scaling`
replaces `rope_parameters`; the base is the one inside it, else `rope_theta`, else 10000.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eagleconv.drafter.contradiction import Contradiction
from eagleconv.drafter.facts import Fact, Question, Rope
from eagleconv.drafter.item_kinds import kind_problem
from eagleconv.drafter.layouts.layout import RopeRule

Get = Callable[[str], tuple[Any, str]]


def normal_scaling(raw: Any) -> dict[str, Any] | None:
    """Return a scaling dict without its base, under the new key names; None where there is none."""
    if not isinstance(raw, Mapping):
        return None
    scaling = {k: v for k, v in raw.items() if k not in ("rope_theta", "partial_rotary_factor")}
    old = scaling.pop("type", None)
    kind = scaling.pop("rope_type", None) or old or "default"
    if kind in ("default", None) and not scaling:
        return None
    return {"rope_type": kind, **scaling}


def read_rope(
    get: Get,
    rules: Sequence[tuple[str, RopeRule]],
    implied: Mapping[str, Any] | None,
    theta: float | None,
    scaling: Mapping[str, Any] | None,
    partial: float | None = None,
) -> tuple[Fact, list[Question]]:
    """Decide what the drafter rotates with.

    Args:
        get: Gives an item of the config and its key.
        rules: For every possible layout, its producer and what that trainer did with the keys.
        implied: Rope of the config's `model_type` where no key says one; None: not known.
        theta, scaling, partial: Declared by the user, or None.

    Returns:
        The fact and the questions that stay open.
    """
    spelled = _spelled(get)
    questions: list[Question] = []
    top_theta, top_partial = get("rope_theta")[0], get("partial_rotary_factor")[0]
    written = bool(spelled) or top_theta is not None
    if implied is not None and any(isinstance(v, Mapping) for v in implied.values()):
        implied = None
    used: Mapping[str, Any] | None
    if scaling is not None:
        used = normal_scaling(scaling)
    elif written:
        used = _scaling(spelled, questions)
        if not spelled and normal_scaling(implied or {}) is not None:
            questions.append(
                Question(
                    "rope scaling",
                    f"rope_theta is written without scaling, and model_type implies "
                    f"{normal_scaling(implied or {})}.",
                    "--rope-scaling '{}' (none) or --rope-scaling with that dict",
                )
            )
    else:
        used = normal_scaling(implied or {})
    base = _base(spelled, top_theta, implied, theta, questions)
    if theta is None and not written and implied is None:
        questions.append(
            Question(
                "rope theta",
                "No rope key is written, and what model_type implies is not known, or differs by "
                "attention type.",
                "--rope-theta BASE" + ("" if scaling is not None else " and --rope-scaling"),
            )
        )
    share = _share(spelled, top_partial, implied, partial, questions)
    kind = "mrope" if used and "mrope_section" in used else str((used or {}).get("rope_type"))
    kind = kind if used else "default"
    if theta is None and base.value is not None and base.value != 10000.0:
        _doubt(
            [(p, r) for p, r in rules if base_of(r, kind) in ("10000", "varies")],
            "rope theta",
            f"config.json says rope base {base.value:g}, which engines use",
            f"--rope-theta {base.value:g} or --rope-theta 10000",
            questions,
        )
    if scaling is None and used is not None:
        _doubt(
            [(p, r) for p, r in rules if kind in r.scaling_doubt or "*" in r.scaling_doubt],
            "rope scaling",
            f"config.json says rope scaling {dict(used)}, which engines use",
            "--rope-scaling '{}' (none) or --rope-scaling with the same dict",
            questions,
        )
    if partial is None and share != 1.0:
        _doubt(
            [(p, r) for p, r in rules if r.partial == "ignored"],
            "partial rotary factor",
            f"{share:g} of each head is to rotate, which vLLM honours; the whole head did in "
            "training",
            f"--partial-rotary-factor 1 or --partial-rotary-factor {share:g}",
            questions,
        )
    rope = Rope(base.value if base.value is not None else 0.0, used, share)
    declared = theta is not None or scaling is not None or partial is not None
    return Fact(rope, "user" if declared else base.origin, base.why, base.keys), questions


def _spelled(get: Get) -> dict[str, Mapping[str, Any]]:
    """Return the rope dicts that say anything, checked entry by entry."""
    spelled: dict[str, Mapping[str, Any]] = {}
    for place in ("rope_scaling", "rope_parameters"):
        raw = get(place)[0]
        check_inside(place, raw)
        if isinstance(raw, Mapping) and any(v is not None for v in raw.values()):
            spelled[place] = {k: v for k, v in raw.items() if v is not None}
    return spelled


def _scaling(
    spelled: Mapping[str, Mapping[str, Any]], questions: list[Question]
) -> Mapping[str, Any] | None:
    """Return the scaling the dicts agree on; a question where they do not."""
    if any(isinstance(v, Mapping) for raw in spelled.values() for v in raw.values()):
        questions.append(
            Question(
                "rope scaling",
                "The rope has one entry per attention type, which no drafter class reads.",
                "--rope-scaling with one dict ('{}' for none) and --rope-theta",
            )
        )
        return None
    found = {place: normal_scaling(raw) for place, raw in spelled.items()}
    if len(found) == 2:
        a, b = found["rope_scaling"], found["rope_parameters"]
        # transformers fills this one in itself.
        fill = "original_max_position_embeddings"
        if a and b and (fill in a) != (fill in b):
            a, b = ({**x, fill: {**b, **a}[fill]} for x in (a, b))
            found = {"rope_scaling": a}
        if a != b:
            questions.append(
                Question(
                    "rope scaling",
                    f"rope_scaling says {a or 'none'}, rope_parameters {b or 'none'}.",
                    "--rope-scaling with the one the weights were trained with, as JSON",
                )
            )
    return next(iter(found.values()), None)


def _base(
    spelled: Mapping[str, Mapping[str, Any]],
    top: float | None,
    implied: Mapping[str, Any] | None,
    declared: float | None,
    questions: list[Question],
) -> Fact:
    """Return the base; a question where it is written in ways that readers resolve differently."""
    bases = {
        f"{place}.rope_theta": float(raw["rope_theta"])
        for place, raw in spelled.items()
        if isinstance(raw.get("rope_theta"), int | float)
    }
    if top is not None:
        bases["rope_theta"] = float(top)
    if declared is not None:
        return Fact(float(declared), "user", "declared by --rope-theta", tuple(bases))
    said = ", ".join(f"{k} {v:g}" for k, v in bases.items())
    if len(set(bases.values())) > 1:
        questions.append(
            Question(
                "rope theta",
                f"The rope base is written twice, differently: {said}.",
                "--rope-theta BASE",
            )
        )
        return Fact(None, "open", said)
    if [*bases] == ["rope_parameters.rope_theta"] and "rope_scaling" in spelled:
        value = next(iter(bases.values()))
        if value != 10000.0:
            questions.append(
                Question(
                    "rope theta",
                    f"{said}, but rope_scaling replaces rope_parameters in transformers 5, and "
                    "without a base of its own it means 10000.",
                    f"--rope-theta {value:g} or --rope-theta 10000",
                )
            )
            return Fact(None, "open", said)
    if bases:
        return Fact(next(iter(bases.values())), "read", "config.json", tuple(bases))
    theta = (implied or {}).get("rope_theta", 10000.0)
    return Fact(float(theta), "default", "no rope_theta; the default of model_type")


def _share(
    spelled: Mapping[str, Mapping[str, Any]],
    top: float | None,
    implied: Mapping[str, Any] | None,
    declared: float | None,
    questions: list[Question],
) -> float:
    """Return the share of each head that rotates; a question where it is written differently."""
    shares = [
        float(raw["partial_rotary_factor"])
        for raw in spelled.values()
        if "partial_rotary_factor" in raw and not isinstance(raw["partial_rotary_factor"], Mapping)
    ]
    shares += [float(top)] if top is not None else []
    if declared is not None:
        return float(declared)
    if len(set(shares)) > 1:
        questions.append(
            Question(
                "partial rotary factor",
                f"partial_rotary_factor is written differently: {shares}.",
                "--partial-rotary-factor F",
            )
        )
    return shares[0] if shares else float((implied or {}).get("partial_rotary_factor", 1.0))


def _doubt(
    doubtful: Sequence[tuple[str, RopeRule]],
    fact: str,
    says: str,
    flag: str,
    questions: list[Question],
) -> None:
    """Ask where a possible producer is known to have done something else."""
    if doubtful and not any(q.fact == fact for q in questions):
        producer, rule = doubtful[0]
        questions.append(Question(fact, f"{says}; {producer}: {rule.why}.", flag))


#: Entries of a rope dict that are text or lists; every other one is a number.
_TEXT = ("rope_type", "type")
_LISTS = ("mrope_section", "short_factor", "long_factor")
_FLAGS = ("mrope_interleaved", "truncate", "finetuned")


def check_inside(place: str, raw: Any) -> None:
    """Refuse a rope dict with an entry of the wrong kind: engines fall back to 10000 silently.

    Raises:
        SourceError: Naming the entry.
    """
    # One entry per attention type is asked about elsewhere.
    if not isinstance(raw, Mapping) or any(isinstance(v, Mapping) for v in raw.values()):
        return
    for key, value in raw.items():
        if value is None:
            continue
        if key in _TEXT:
            good = isinstance(value, str)
        elif key in _LISTS:
            good = isinstance(value, list) and bool(value)
        elif key in _FLAGS:
            good = isinstance(value, bool)
        elif key in ("rope_theta", "partial_rotary_factor"):
            good = not kind_problem(key, value)
        else:
            good = not kind_problem("rope_theta", value)
        if not good:
            raise Contradiction(
                "ECC006",
                "config.json",
                f"key {place}.{key} is {json.dumps(value)[:60]}, which is no value for it",
                "correct the config",
                key=f"{place}.{key}",
            )


def base_of(rule: RopeRule, kind: str) -> str:
    """Return what a trainer rotated with for one kind of scaling."""
    return rule.base.get(kind, rule.base.get("*", "config"))


def write_rope(rope: Rope) -> dict[str, Any]:
    """Return the config items of a rope, both spellings identical.

    `rope_scaling` is left out (None here) where there is no scaling: a non-empty one replaces
    `rope_parameters`, an empty one says nothing.
    """
    scaling = dict(rope.scaling) if rope.scaling else {"rope_type": "default"}
    both: dict[str, Any] = {"rope_theta": rope.theta, **scaling}
    if rope.partial_rotary_factor != 1.0:
        both["partial_rotary_factor"] = rope.partial_rotary_factor
    return {
        "rope_parameters": both,
        "rope_theta": rope.theta,
        "rope_scaling": dict(both) if rope.scaling else None,
        "partial_rotary_factor": (
            rope.partial_rotary_factor if rope.partial_rotary_factor != 1.0 else None
        ),
    }
