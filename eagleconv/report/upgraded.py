"""What an upgrade did, in text."""

import json
from typing import Any

from eagleconv.engines import ENGINES, answer, traits
from eagleconv.report.drafter import taps_words
from eagleconv.upgrade.apply import Upgraded


def short(value: Any) -> str:
    """Return a value in at most some 60 characters."""
    text = "absent" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def as_lines(done: Upgraded) -> str:
    """Return the account of an upgrade."""
    plan, drafter = done.plan, done.drafter
    lines = [
        f"{drafter.checkpoint.source}: {drafter.variant}",
        f"taps: {taps_words(plan.spec.aux)}",
        "",
    ]
    carried = sum(1 for source in plan.tensors.values() if source is not None)
    if done.already:
        lines.append("already in the EAGLE 3.1 layout: copied as it is")
    for edit in plan.edits:
        if edit.kind == "rename":
            continue
        lines.append(f"{edit.kind:7} {edit.name}: {short(edit.before)} -> {short(edit.after)}")
        lines.append(f"        {edit.origin}: {edit.reason}")
    renames = sum(1 for e in plan.edits if e.kind == "rename")
    lines.append("")
    lines.append(
        f"{carried} tensors carried byte for byte, {renames} renamed, "
        f"{len(plan.derived)} derived, {len(drafter.dropped)} dropped"
    )
    if done.not_carried:
        lines.append(f"not carried: {', '.join(done.not_carried)}")
    for trap in drafter.traps:
        lines.append(f"{trap.severity}: {trap.code} {trap.name}: {trap.message}")
    lines += ["", "served as it was trained by:"]
    known = drafter.target.num_layers if drafter.target else None
    for engine in ENGINES:
        found = answer(engine, traits(plan.spec, known))
        doubt = "" if engine.verified else " (unverified)"
        lines.append(f"  {engine.name:8} {engine.version:8} {found.verdict}{doubt}")
        lines += [f"           {reason} [{source}]" for reason, source in found.reasons]
    lines.append("")
    if done.destination:
        lines.append(f"written: {done.destination}")
    else:
        lines.append("dry run: nothing was written")
    return "\n".join(lines) + "\n"
