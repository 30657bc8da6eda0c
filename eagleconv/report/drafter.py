"""A drafter in text, markdown and JSON."""

from dataclasses import asdict
from typing import Any

from eagleconv import __version__
from eagleconv.drafter.facts import FACT_NAMES, AuxLayers
from eagleconv.drafter.read import Drafter
from eagleconv.rules import BY_CODE


def taps_words(aux: AuxLayers) -> str:
    """Name the taps in both numberings."""
    if aux.rule == "last":
        return "the last hidden state only"
    if aux.boundaries is None:
        return f"{aux.count} states, default rule: boundaries 2, n//2, n-3 of a target of n layers"
    taps = ", ".join(map(str, aux.boundaries))
    outputs = ", ".join("embedding" if k < 0 else str(k) for k in aux.outputs() or ())
    return f"boundaries {taps} (= outputs of layers {outputs}, counted from 0)"


def parameters(drafter: Drafter) -> int:
    """Count the values of all carried tensors but the vocabulary map."""
    total = 0
    for canonical, stored in drafter.tensors.items():
        if canonical not in ("d2t", "t2d") and stored not in drafter.dropped:
            count = 1
            for size in drafter.checkpoint.tensors[stored].shape:
                count *= size
            total += count
    return total


def plain(value: Any) -> Any:
    """Return a fact's value as JSON can hold it."""
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value


def as_json(drafter: Drafter) -> dict[str, Any]:
    """Return the report of `inspect` (schemas/report.schema.json)."""
    findings = [
        {
            "code": t.code,
            "name": BY_CODE[t.code].name,
            "severity": BY_CODE[t.code].severity,
            "message": t.message,
            "location": {
                "file": "config.json" if t.key else "",
                "key": t.key,
                "tensor": t.tensor,
            },
            "hint": t.hint,
        }
        for t in drafter.traps
    ]
    counts = {
        s: sum(1 for f in findings if f["severity"] == s) for s in ("error", "warning", "info")
    }
    return {
        "schema_version": 1,
        "tool": {"name": "eagleconv", "version": __version__},
        "subject": {
            "source": drafter.checkpoint.source,
            "revision": drafter.checkpoint.revision,
            "layout": list(drafter.layout_names),
            "variant": drafter.variant,
        },
        "drafter": {
            "producers": list(drafter.producers),
            "evidence": {c.layout.name: list(c.evidence) for c in drafter.candidates},
            "facts": {
                name: {
                    "value": plain(drafter.facts[name].value),
                    "origin": drafter.facts[name].origin,
                    "why": drafter.facts[name].why,
                }
                for name in FACT_NAMES
            },
            "questions": [q.line() for q in drafter.questions],
            "parameters": parameters(drafter),
            "tensors": {
                canonical: {
                    "stored": stored,
                    "dtype": drafter.checkpoint.tensors[stored].dtype,
                    "shape": list(drafter.checkpoint.tensors[stored].shape),
                    "bytes": drafter.checkpoint.tensors[stored].nbytes,
                }
                for canonical, stored in drafter.tensors.items()
            },
            "dropped": dict(drafter.dropped),
            "notes": list(drafter.checkpoint.notes),
        },
        "findings": findings,
        "summary": {
            "errors": counts["error"],
            "warnings": counts["warning"],
            "infos": counts["info"],
            "checks_run": len(drafter.tensors),
            "checks_skipped": [],
        },
    }


def as_lines(drafter: Drafter, *, markdown: bool, verbose: bool) -> str:
    """Return the report as text or markdown."""
    c = drafter.checkpoint
    size = sum(c.tensors[s].nbytes for s in drafter.tensors.values())
    aux = drafter.facts["aux"]
    head = [
        ("source", c.source + (f" at {c.revision}" if c.revision else "")),
        ("variant", drafter.variant),
        ("layout", " or ".join(drafter.layout_names)),
        ("producer", " or ".join(drafter.producers)),
        (
            "taps",
            f"{aux.value.count} states; which ones is open"
            if aux.origin == "open"
            else taps_words(aux.value),
        ),
        (
            "weights",
            f"{parameters(drafter) / 1e6:.1f} M parameters, {size / 1e6:.1f} MB, "
            f"{drafter.facts['dtype'].value}, {len(c.tensors)} tensors in {', '.join(c.weight_files)}",
        ),
    ]
    lines = [f"# {c.source}" if markdown else "", ""][: 2 if markdown else 0]
    for key, value in head:
        lines.append(f"- **{key}**: {value}" if markdown else f"{key:10} {value}")
    for candidate in drafter.candidates:
        evidence = ", ".join(candidate.evidence) or "nothing that speaks against it"
        text = f"{candidate.layout.name}: {evidence}"
        lines.append(f"- **evidence** {text}" if markdown else f"{'evidence':10} {text}")
    if verbose:
        lines.append("")
        for name in FACT_NAMES:
            fact = drafter.facts[name]
            value = plain(fact.value)
            row = f"{name:24} {value!s:32} {fact.origin:9} {fact.why}"
            lines.append(f"- `{name}` = {value} ({fact.origin}: {fact.why})" if markdown else row)
    for title, rows in (
        ("cannot be known from the files", [q.line() for q in drafter.questions]),
        ("known trouble", [f"{t.code} {BY_CODE[t.code].name}: {t.message}" for t in drafter.traps]),
        ("notes", list(c.notes)),
    ):
        if rows:
            lines += ["", f"## {title}" if markdown else f"{title}:"]
            lines += [f"- {row}" if markdown else f"  {row}" for row in rows]
    return "\n".join(lines) + "\n"
