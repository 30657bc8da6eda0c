"""Rotary positions: three spellings in a config, and trainers that ignored them.

Precedence in transformers 5.19 (`modeling_rope_utils.py:752-781`, run): a non-empty `rope_scaling`
replaces `rope_parameters`; the base is the one inside it, else `rope_theta`, else 10000.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eagleconv.drafter.facts import Fact, Question, Rope
from eagleconv.drafter.item_kinds import kind_problem
from eagleconv.drafter.layouts.layout import RopeRule
from eagleconv.errors import SourceError

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
    default_theta: float,
    theta: float | None,
    scaling: Mapping[str, Any] | None,
    partial_declared: float | None = None,
) -> tuple[Fact, list[Question]]:
    """Decide what the drafter rotates with.

    Args:
        get: Gives an item of the config and its key.
        rules: For every possible layout, its producer and what that trainer did with the keys.
        default_theta: Base of the `model_type` where no key says one.
        theta, scaling, partial_declared: Declared by the user, or None.

    Returns:
        The fact and the questions that stay open.
    """
    parameters, _ = get("rope_parameters")
    old, _ = get("rope_scaling")
    top, _ = get("rope_theta")
    partial, _ = get("partial_rotary_factor")
    questions = []
    for place, raw in (("rope_parameters", parameters), ("rope_scaling", old)):
        check_inside(place, raw)
    nested = isinstance(parameters, Mapping) and any(
        isinstance(v, Mapping) for v in parameters.values()
    )
    places = {
        "rope_parameters.rope_theta": parameters.get("rope_theta")
        if isinstance(parameters, Mapping)
        else None,
        "rope_scaling.rope_theta": old.get("rope_theta") if isinstance(old, Mapping) else None,
        "rope_theta": top,
    }
    if partial is None and isinstance(parameters, Mapping):
        inner = parameters.get("partial_rotary_factor")
        partial = inner if isinstance(inner, int | float) else None
    bases = {k: float(v) for k, v in places.items() if isinstance(v, int | float)}
    shapes = [
        s for raw in (old, parameters) if not nested and (s := normal_scaling(raw)) is not None
    ]
    if scaling is None and nested:
        questions.append(
            Question(
                "rope scaling",
                "rope_parameters has one entry per attention type, which no drafter class reads.",
                "--rope-scaling '{...}' (or '{}' for none) and --rope-theta",
            )
        )
    if scaling is None and len(shapes) == 2 and shapes[0] != shapes[1]:
        questions.append(
            Question(
                "rope scaling",
                f"rope_scaling says {shapes[0]}, rope_parameters {shapes[1]}.",
                "--rope-scaling with the one the weights were trained with, as JSON",
            )
        )
    used = (normal_scaling(scaling) if scaling is not None else None) or (
        shapes[0] if scaling is None and shapes else None
    )
    if theta is not None:
        base = Fact(float(theta), "user", "declared by --rope-theta", tuple(bases))
    elif len(set(bases.values())) > 1:
        said = ", ".join(f"{k} {v:g}" for k, v in bases.items())
        questions.append(
            Question(
                "rope theta",
                f"The rope base is written twice, differently: {said}.",
                "--rope-theta BASE",
            )
        )
        base = Fact(None, "open", said)
    elif bases:
        base = Fact(next(iter(bases.values())), "read", "config.json", tuple(bases))
    else:
        base = Fact(float(default_theta), "default", "no rope_theta; the default of model_type")
    kind = str(used.get("rope_type")) if used else "default"
    if used and "mrope_section" in used:
        kind = "mrope"
    if theta is None and base.value is not None and base.value != 10000.0:
        doubt = [(p, r) for p, r in rules if base_of(r, kind) in ("10000", "varies")]
        if doubt:
            producer, rule = doubt[0]
            questions.append(
                Question(
                    "rope theta",
                    f"config.json says rope base {base.value:g}, which engines use; {producer}: "
                    f"{rule.why}.",
                    f"--rope-theta {base.value:g} or --rope-theta 10000",
                )
            )
    if scaling is None and used is not None:
        ignoring = [(p, r) for p, r in rules if r.scaling == "ignored"]
        if ignoring:
            producer, rule = ignoring[0]
            questions.append(
                Question(
                    "rope scaling",
                    f"config.json says rope scaling {used}, which engines use; {producer}: "
                    f"{rule.why}.",
                    "--rope-scaling '{}' (as trained) or --rope-scaling with the same dict",
                )
            )
    if isinstance(partial, int | float) and partial != 1.0 and partial_declared is None:
        whole = [(p, r) for p, r in rules if r.partial == "ignored"]
        if whole:
            questions.append(
                Question(
                    "partial rotary factor",
                    f"config.json says {partial:g} of each head rotates, which vLLM honours; "
                    f"{whole[0][0]} rotates the whole head whatever is written.",
                    f"--partial-rotary-factor 1 or --partial-rotary-factor {partial:g}",
                )
            )
    if partial_declared is not None:
        partial = partial_declared
    rope = Rope(base.value if base.value is not None else 0.0, used, float(partial or 1.0))
    origin = "user" if theta is not None or scaling is not None else base.origin
    return Fact(rope, origin, base.why, base.keys), questions


#: Entries of a rope dict that are text or lists; every other one is a number.
_TEXT = ("rope_type", "type")
_LISTS = ("mrope_section", "short_factor", "long_factor")
_FLAGS = ("mrope_interleaved", "truncate", "finetuned")


def check_inside(place: str, raw: Any) -> None:
    """Refuse a rope dict with an entry of the wrong kind: engines fall back to 10000 silently.

    Raises:
        SourceError: Naming the entry.
    """
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
            good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good:
            raise SourceError(
                f"config.json key {place}.{key} is {json.dumps(value)[:60]}, which is no value for it",
                "correct the config",
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
