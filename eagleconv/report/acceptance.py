"""A measurement of acceptance in text, markdown and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eagleconv import __version__

if TYPE_CHECKING:
    from eagleconv.runtime.measured import Measured, Smoked

_BAR = 40


def below(found: Smoked, length: float | None, shares: Sequence[float]) -> tuple[str, ...]:
    """Return a sentence for each threshold that is missed."""
    counts, out = found.counts, []
    if length is not None and not counts.mean_acceptance_length >= length:
        out.append(
            f"mean acceptance length {counts.mean_acceptance_length:.3f} is below {length:g}"
        )
    for at, (share, wanted) in enumerate(zip(counts.per_position, shares, strict=False), 1):
        if not share >= wanted:
            out.append(f"acceptance at position {at} is {share:.3f}, below {wanted:g}")
    return tuple(out)


def as_lines(found: Smoked, missed: Sequence[str]) -> str:
    """Return counts, a bar for each position, speed, and what failed."""
    counts = found.counts
    low, high = found.length_interval
    lines = [
        f"{found.drafter} with {found.target}",
        f"  variant   {found.variant}",
        f"  prompts   {len(found.measured)} of the {found.prompts} set, {_decoding(found)}",
        f"  on        {found.device}, {found.dtype}",
        "",
        f"  drafts    {counts.drafts} of {found.depth} tokens: {counts.accepted} of {counts.drafted} "
        f"tokens accepted ({counts.acceptance_rate:.1%})",
        f"  mean acceptance length {counts.mean_acceptance_length:.3f} (95 % interval over prompts "
        f"{low:.3f} to {high:.3f}; bonus token included)",
        "",
        "  position  accepted     of all   given the one before",
    ]
    rows = zip(counts.accepted_per_position, counts.per_position, counts.conditional, strict=True)
    for at, (accepted, share, given) in enumerate(rows, 1):
        bar = "█" * round(_BAR * share) if not math.isnan(share) else ""
        lines.append(f"  {at:8}  {accepted:8}  {share:8.3f}  {given:8.3f}  {bar}")
    lines += ["", *(f"  {line}" for line in _speed(found)), *_text(found)]
    if found.control is not None:
        lines.append(
            f"  control   a shuffled head: {found.control.mean_acceptance_length:.3f} "
            f"({found.control.accepted} of {found.control.drafted} tokens)"
        )
    lines += [f"failed: {sentence}" for sentence in (*missed, *found.failures)]
    return "\n".join(lines) + "\n"


def _decoding(found: Smoked) -> str:
    return "greedy" if not found.temperature else f"temperature {found.temperature:g}"


def _speed(found: Smoked) -> list[str]:
    alone, c, v = found.alone_tokens_per_second, found.draft_cost, found.verify_cost
    if alone is None or c is None or v is None:
        return [f"speed     {found.tokens_per_second:.1f} tokens/s; the target alone was not run"]
    ratio = found.tokens_per_second / alone
    lines = [
        f"speed     {found.tokens_per_second:.1f} tokens/s, the target alone {alone:.1f}: "
        f"{ratio:.2f} times",
        f"cost      a draft step takes {c:.3f} of a step of the target, a verification {1 + v:.2f}",
    ]
    if ratio < 1:
        need = 1 + c * found.depth + v
        lines.append(
            f"          slower here: a draft brings {found.counts.mean_acceptance_length:.2f} tokens "
            f"and costs {need:.2f} steps of the target"
        )
    return lines


def _text(found: Smoked) -> list[str]:
    said = [m for m in found.measured if m.same_text is not None]
    if not said:
        return []
    same = sum(bool(m.same_text) for m in said)
    gap = min(m.smallest_gap for m in said)
    return [
        f"  text      {same} of {len(said)} are the target's own, token for token (smallest gap of "
        f"two logits {gap:.2g}); that says nothing about the drafter"
    ]


def as_markdown(found: Smoked, missed: Sequence[str]) -> str:
    """Return tables, for the summary of a job or a model card."""
    counts = found.counts
    low, high = found.length_interval
    lines = [
        f"## Acceptance: {counts.mean_acceptance_length:.3f}",
        "",
        f"`{found.drafter}` with `{found.target}`: {len(found.measured)} prompts ({found.prompts}), "
        f"{_decoding(found)}, depth {found.depth}, {found.dtype}, {found.device}. 95 % interval "
        f"{low:.3f} to {high:.3f}; the bonus token is included.",
        "",
        "| position | accepted | of all drafts | given the one before |",
        "|---|---|---|---|",
    ]
    rows = zip(counts.accepted_per_position, counts.per_position, counts.conditional, strict=True)
    lines += [f"| {at} | {n} | {a:.3f} | {b:.3f} |" for at, (n, a, b) in enumerate(rows, 1)]
    lines += ["", *(f"- {' '.join(line.split())}" for line in (*_speed(found), *_text(found)))]
    lines += [f"- **failed**: {sentence}" for sentence in (*missed, *found.failures)]
    return "\n".join(lines) + "\n"


def as_json(found: Smoked, missed: Sequence[str]) -> dict[str, Any]:
    """Return the report (schemas/acceptance.schema.json)."""
    from eagleconv.runtime.acceptance import as_json as counted

    low, high = found.length_interval
    failed = (*missed, *found.failures)
    return {
        "schema_version": 1,
        "tool": {"name": "eagleconv", "version": __version__},
        "subject": {
            "source": found.drafter,
            "revision": found.drafter_revision,
            "layout": list(found.layouts),
            "variant": found.variant,
        },
        "target": found.target,
        "acceptance": counted(found.counts),
        "mean_acceptance_length_interval": [_number(low), _number(high)],
        "drafting": "chain",
        "temperature": found.temperature,
        "prompts": {
            "name": found.prompts,
            "digest": found.prompts_digest,
            "count": len(found.measured),
        },
        "device": found.device,
        "dtype": found.dtype,
        "versions": dict(found.versions),
        "speed": {
            "tokens_per_second": found.tokens_per_second,
            "alone_tokens_per_second": found.alone_tokens_per_second,
            "draft_cost": found.draft_cost,
            "verify_cost": found.verify_cost,
        },
        "control": counted(found.control) if found.control is not None else None,
        "by_prompt": [_prompt(m) for m in found.measured],
        "findings": [
            {
                "code": "ECS001",
                "name": "acceptance",
                "severity": "error",
                "message": sentence,
                "location": {},
                "hint": "",
            }
            for sentence in failed
        ],
        "summary": {
            "errors": len(failed),
            "warnings": 0,
            "infos": 0,
            "checks_run": 1,
            "checks_skipped": [],
        },
    }


def _prompt(m: Measured) -> dict[str, Any]:
    return {
        "id": m.id,
        "category": m.category,
        "drafts": m.counts.drafts,
        "accepted_per_position": list(m.counts.accepted_per_position),
        "tokens": m.tokens,
        "same_text": m.same_text,
        "distinct": m.distinct,
        "smallest_gap": _number(m.smallest_gap),
        "seconds": m.seconds,
        "alone_seconds": m.alone_seconds,
    }


def _number(x: float) -> float | None:
    return x if math.isfinite(x) else None
