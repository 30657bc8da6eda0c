"""The plan of an upgrade: the new config, the new names, and every edit with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eagleconv.drafter.declared import DerivedTensor
from eagleconv.drafter.facts import DrafterSpec
from eagleconv.drafter.items import FACT_OF
from eagleconv.drafter.layouts import CANONICAL
from eagleconv.drafter.read import Drafter
from eagleconv.drafter.write import flat_base, write_config, write_tensors
from eagleconv.errors import ConversionError

_ORDER = ("config", "rename", "drop", "derive")


@dataclass(frozen=True, slots=True)
class Edit:
    """One change.

    Attributes:
        kind: `config`, `rename`, `drop` or `derive`.
        name: Dotted config key, or tensor.
        before: Value or name before; None where there was none.
        after: Value or name after; None where it is gone.
        origin: Where the new value comes from.
        reason: Why.
        exactness: `exact` or `approximate`.
    """

    kind: str
    name: str
    before: Any
    after: Any
    origin: str
    reason: str
    exactness: str = "exact"


@dataclass(frozen=True, slots=True)
class Plan:
    """What an upgrade will write.

    Attributes:
        spec: What the drafter computes, before and after.
        config: The new config.json.
        tensors: Output name -> source name, or None for a derived tensor.
        derived: Output name -> derived tensor.
        edits: Every change. Empty: the source is already in the layout.
    """

    spec: DrafterSpec
    config: dict[str, Any]
    tensors: Mapping[str, str | None]
    derived: Mapping[str, DerivedTensor]
    edits: tuple[Edit, ...]


def plan_layout(drafter: Drafter) -> Plan:
    """Plan mode `layout`: names and config keys change, no value of any tensor does.

    Raises:
        OpenQuestions: A fact is open.
        ConversionError: The drafter cannot be written in the 3.1 layout.
    """
    spec = drafter.spec()
    if spec.input_norm == "both":
        raise ConversionError(
            f"{drafter.checkpoint.source} has fc_norm and input_norm at once: vLLM applies both, "
            "TensorRT-LLM one, speculators refuses",
            "find out which one it was trained with",
        )
    target = drafter.target
    layers = target.num_layers if target else None
    config = write_config(
        spec,
        CANONICAL,
        flat_base(drafter.checkpoint.config),
        target.model_type
        if target
        else str(drafter.checkpoint.config.get("target_model_type", "")),
        layers,
    )
    placed = write_tensors(drafter, spec, CANONICAL)
    tensors: dict[str, str | None] = {**placed.stored, **dict.fromkeys(placed.derived)}
    edits: list[Edit] = []
    for name, stored in placed.stored.items():
        if name != stored:
            edits.append(Edit("rename", stored, stored, name, "inferred", "the canonical name"))
    for name, tensor in placed.derived.items():
        before = drafter.tensors.get(name)
        edits.append(Edit("derive", name, before, name, "inferred", tensor.reason))
    for stored, reason in {**drafter.dropped, **placed.omitted}.items():
        edits.append(Edit("drop", stored, stored, None, "inferred", reason))
    edits += config_edits(drafter, spec, config)
    edits.sort(key=lambda e: _ORDER.index(e.kind))
    return Plan(spec, config, tensors, placed.derived, tuple(edits))


def _flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in config.items():
        if key in ("eagle_config", "transformer_layer_config") and isinstance(value, dict):
            out |= _flatten(value, f"{key}.")
        else:
            out[f"{prefix}{key}"] = value
    return out


def config_edits(drafter: Drafter, spec: DrafterSpec, config: Mapping[str, Any]) -> list[Edit]:
    """Compare two configs key by key; each difference gets the origin and reason of its fact."""
    before, after = _flatten(drafter.checkpoint.config), _flatten(config)
    items = dict(CANONICAL.keys)
    edits = []
    for key in (*after, *(k for k in before if k not in after)):
        missing = key not in after
        if not missing and key in before and same(before[key], after[key]):
            continue
        if missing and key.startswith("transformer_layer_config."):
            name = key.split(".", 1)[1]
            if name in config and same(before[key], config[name]):
                continue
        item = items.get(key, "")
        fact = spec.origins.get(FACT_OF.get(item, item))
        if key in ("architectures", "model_type"):
            origin, reason = "inferred", f"the class engines load for a {spec.block} block"
        elif fact is not None and not missing:
            origin, reason = fact.origin, fact.why
        elif missing:
            origin, reason = "inferred", "belongs to the source's layout only, or says nothing here"
        else:
            origin, reason = "inferred", "explicit, so that no reader has to assume it"
        edits.append(Edit("config", key, before.get(key), after.get(key), origin, reason))
    return edits


def same(a: Any, b: Any) -> bool:
    """Say whether two JSON values are equal, with true and 1 kept apart."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)
