"""What an upgrade did, in text."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from eagleconv.conversion.apply import Upgraded
from eagleconv.conversion.plan import Edit
from eagleconv.engines import ENGINES, answer, traits
from eagleconv.report.drafter import taps_words
from eagleconv.rules import BY_CODE


def short(value: Any) -> str:
    """Return a value in at most some 60 characters."""
    text = "absent" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def recorded(target: Mapping[str, Any]) -> str:
    """Say what a fingerprint holds, and what it does not."""
    held = ["shapes"]
    held += [n.replace("_", " ") for n in ("tokenizer", "chat_template") if target[n]]
    if target["weights"]:
        held.append(f"rows of {len(target['weights']['rows'])} tensors")
    lacking = [f"{n.replace('_', ' ')} ({why})" for n, why in target["missing"].items()]
    return ", ".join(held) + (f"; not {'; '.join(lacking)}" if lacking else "")


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
    # Edits that follow from one fact stand together, under the reason they share.
    groups: dict[tuple[str, str, str], list[Edit]] = {}
    for edit in plan.edits:
        if edit.kind != "rename":
            groups.setdefault((edit.kind, edit.origin, edit.reason), []).append(edit)
    for (kind, origin, reason), edits in groups.items():
        lines.append(f"{kind}: {reason} ({origin})")
        lines += [f"    {e.name}: {short(e.before)} -> {short(e.after)}" for e in edits]
    renames = sum(1 for e in plan.edits if e.kind == "rename")
    lines.append("")
    lines.append(
        f"{carried} tensors carried byte for byte, {renames} renamed, "
        f"{len(plan.derived)} derived, {len(drafter.dropped)} dropped"
    )
    if done.not_carried:
        lines.append(f"not carried: {', '.join(done.not_carried)}")
    if done.target:
        lines.append(f"recorded of the target: {recorded(done.target)}")
    for trap in drafter.traps:
        rule = BY_CODE[trap.code]
        lines.append(f"{rule.severity}: {rule.code} {rule.name}: {trap.message}")
    lines += ["", "served as it was trained by:"]
    known = drafter.target.num_layers if drafter.target else None
    spec = plan.spec
    if spec.aux.boundaries is not None and spec.aux.rule == "default":
        # The output has its ids written, and no engine need apply a default.
        spec = replace(spec, aux=replace(spec.aux, rule="explicit"))
    for engine in ENGINES:
        found = answer(engine, traits(spec, known))
        doubt = "" if engine.verified else " (unverified)"
        lines.append(f"  {engine.name:8} {engine.version:8} {found.verdict}{doubt}")
        lines += [f"           {reason} [{source}]" for reason, source in found.reasons]
        if engine.serve and found.verdict == "supported" and done.destination:
            command = engine.serve.format(drafter=done.destination, target="TARGET")
            lines.append(f"           {command}")
    lines.append("")
    if done.destination:
        lines.append(f"written: {done.destination}")
    else:
        lines.append("dry run: nothing was written")
    return "\n".join(lines) + "\n"
