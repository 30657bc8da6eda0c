"""Which layouts a checkpoint can be: the set of them, each with the evidence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from eagleconv.drafter.layouts.layout import Layout, Signature

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout that fits, and why."""

    layout: Layout
    evidence: tuple[str, ...]


def lookup(config: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """Return the value at a dotted path (`eagle_config.norm_before_fc`), or the default."""
    value: Any = config
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return value


def present(config: Mapping[str, Any], path: str) -> bool:
    """Say whether a dotted path is there, even if its value is null."""
    return lookup(config, path, _MISSING) is not _MISSING


def architecture(config: Mapping[str, Any]) -> str:
    """Return the first entry of `architectures`, or an empty string."""
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def fits(
    signature: Signature, config: Mapping[str, Any], names: Iterable[str]
) -> tuple[str, ...] | None:
    """Return the evidence that a signature fits, or None where it does not."""
    names = tuple(names)
    evidence = []
    for pattern in signature.tensors:
        found = next((n for n in names if fnmatchcase(n, pattern)), None)
        if found is None:
            return None
        evidence.append(f"tensor {found}")
    if any(fnmatchcase(n, pattern) for pattern in signature.no_tensors for n in names):
        return None
    if signature.architectures:
        if architecture(config) not in signature.architectures:
            return None
        evidence.append(f"architectures [{architecture(config)}]")
    for key in signature.keys:
        if not present(config, key):
            return None
        evidence.append(f"key {key}")
    if signature.any_keys:
        found = next((k for k in signature.any_keys if lookup(config, k) is not None), None)
        if found is None:
            return None
        evidence.append(f"key {found}")
    if any(present(config, key) for key in signature.no_keys):
        return None
    for key, values in signature.values.items():
        value = lookup(config, key)
        if value not in values:
            return None
        if value is not None:
            evidence.append(f"{key} = {value}")
    return tuple(evidence)


def candidates(
    config: Mapping[str, Any], names: Iterable[str], layouts: Iterable[Layout]
) -> tuple[Candidate, ...]:
    """Return every layout the files can be.

    A key only one producer writes (`certain_key`) leaves that producer's layouts alone.
    """
    names = tuple(names)
    found = []
    for layout in layouts:
        evidence = fits(layout.signature, config, names)
        if evidence is not None:
            found.append(Candidate(layout, evidence))
    certain = [
        Candidate(c.layout, (*c.evidence, f"key {c.layout.certain_key}"))
        for c in found
        if c.layout.certain_key and present(config, c.layout.certain_key)
    ]
    return tuple(certain or found)
