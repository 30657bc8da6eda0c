"""What the weights of a drafter want, in text, markdown and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from eagleconv import __version__

if TYPE_CHECKING:
    from eagleconv.runtime.doctor import Diagnosis, Scored


def conclusion(found: Diagnosis) -> tuple[str, ...]:
    """Return the answer in a sentence, and what to do about it."""
    wanted = found.wanted
    base = found.readings[0]
    if wanted is None:
        same = [s.text for s in found.readings[1:] if s.gain_high >= 0]
        tie = f"; not told from it: {', '.join(same)}" if same else ""
        return (f"as configured: no other reading is better{tie}",)
    out = [
        f"{wanted.name}: the weights want {wanted.text}: {wanted.gain:+.2f} nats per token "
        f"({wanted.gain_low:+.2f} to {wanted.gain_high:+.2f}), {wanted.accepted:.2f} tokens accepted "
        f"per draft instead of {base.accepted:.2f}",
        f"change: {wanted.change}",
    ]
    tied = [s.text for s in found.readings[1:] if s.tied]
    if tied:
        out.append(f"not told from it: {', '.join(tied)}")
    return tuple(out)


def as_lines(found: Diagnosis) -> str:
    """Return a row for each reading, best first, and the answer."""
    lines = [
        f"{found.drafter} with {found.target}",
        f"  variant   {found.variant}",
        f"  looked at {found.positions} prefixes of {found.prompts} texts of the target, {found.depth} "
        "tokens drafted at each",
        "",
        f"  {'gain in nats per token':>28}  accepted  right by depth       reading",
    ]
    ranked = sorted(found.readings, key=lambda s: -s.likelihood)
    lines += [f"  {_gain(s):>28}  {s.accepted:8.2f}  {_depths(s):19}  {_label(s)}" for s in ranked]
    return "\n".join([*lines, "", *conclusion(found)]) + "\n"


def _gain(s: Scored) -> str:
    if s.name == "configured":
        return f"({s.likelihood:.2f})"
    return f"{s.gain:+.2f} ({s.gain_low:+.2f} to {s.gain_high:+.2f})"


def _depths(s: Scored) -> str:
    return " ".join(f"{share:.2f}" for share in s.per_depth)


def _label(s: Scored) -> str:
    return s.text if s.name == "configured" else f"{s.name}: {s.text}"


def as_markdown(found: Diagnosis) -> str:
    """Return a table and the answer."""
    lines = [f"## {conclusion(found)[0]}", "", *(f"- {line}" for line in conclusion(found)[1:]), ""]
    lines += [
        "| reading | gain, nats per token | accepted per draft | right by depth |",
        "|---|---|---|---|",
    ]
    ranked = sorted(found.readings, key=lambda s: -s.likelihood)
    lines += [f"| {_label(s)} | {_gain(s)} | {s.accepted:.2f} | {_depths(s)} |" for s in ranked]
    return "\n".join(lines) + "\n"


def as_json(found: Diagnosis) -> dict[str, Any]:
    """Return the report (schemas/diagnosis.schema.json)."""
    wanted = found.wanted
    return {
        "schema_version": 1,
        "tool": {"name": "eagleconv", "version": __version__},
        "subject": {
            "source": found.drafter,
            "revision": found.revision,
            "layout": list(found.layouts),
            "variant": found.variant,
        },
        "target": found.target,
        "verdict": "as configured" if wanted is None else wanted.name,
        "sentences": list(conclusion(found)),
        "prompts": found.prompts,
        "positions": found.positions,
        "depth": found.depth,
        "readings": [asdict(s) | {"per_depth": list(s.per_depth)} for s in found.readings],
    }
