"""Write a canonical drafter in a layout: its config, and the names of its tensors."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eagleconv.drafter.declared import DerivedTensor
from eagleconv.drafter.facts import DrafterSpec
from eagleconv.drafter.items import OMIT, encode
from eagleconv.drafter.layouts import CANONICAL, LAYOUTS
from eagleconv.drafter.layouts.layout import Layout
from eagleconv.drafter.names import from_canonical
from eagleconv.drafter.read import Drafter
from eagleconv.drafter.vocabulary import integers, mask_of, offsets_of, target_ids
from eagleconv.errors import ConversionError


def inexpressible(spec: DrafterSpec, layout: Layout) -> list[str]:
    """Return one sentence for each fact a layout cannot say; empty where it can say all."""
    e, out = layout.expressible, []
    for name, allowed in e.facts.items():
        value = getattr(spec, name)
        if value not in allowed:
            out.append(f"{name} {value} (it has {', '.join(map(str, allowed))})")
    if e.ids == "default" and spec.aux.rule != "default":
        out.append("layer ids other than the default rule")
    if 0 in (spec.aux.boundaries or ()) and "aux_boundaries" not in dict(layout.keys).values():
        out.append("the embedding among the hidden states, which is no layer's output")
    if e.max_layers is not None and spec.num_layers > e.max_layers:
        out.append(f"{spec.num_layers} layers")
    if e.aux_count is not None and spec.aux.count != e.aux_count:
        out.append(f"{spec.aux.count} aux hidden states (it has {e.aux_count})")
    if e.own_embedding is not None and spec.own_embedding is not e.own_embedding:
        out.append("no embedding" if e.own_embedding else "an embedding of its own")
    if e.equal_widths and spec.hidden_size != spec.target_hidden_size:
        out.append("a width other than the target's")
    if not e.biases and (spec.attention_bias or spec.mlp_bias or spec.fc_bias):
        out.append("biases")
    if not e.quantized and spec.quantization is not None:
        out.append("quantised weights")
    if not e.window and any(spec.window):
        out.append("an attention window")
    if not e.scaling and spec.rope.scaling is not None:
        out.append("rope scaling")
    if not e.borrowed_head and not spec.own_head:
        out.append("a borrowed lm_head")
    return out


def flat_base(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the source's config at the flat level, without keys that belong to one layout."""
    base = copy.deepcopy(dict(config))
    nested = base.pop("transformer_layer_config", None)
    if isinstance(nested, dict):
        base = {**nested, **base}
    own = {key for layout in LAYOUTS for key in layout.own_keys}
    return {key: value for key, value in base.items() if key not in own}


def write_config(
    spec: DrafterSpec,
    layout: Layout,
    base: Mapping[str, Any],
    target_type: str = "",
    layers: int | None = None,
) -> dict[str, Any]:
    """Return the config.json of a drafter in a layout.

    Args:
        spec: The drafter.
        layout: The layout to write.
        base: Keys to keep, from `flat_base`; known keys among them are replaced.
        target_type: The target's `model_type`, where known.
        layers: The target's layer count, where known.

    Raises:
        ConversionError: The layout cannot say what the drafter is.
    """
    cannot = inexpressible(spec, layout)
    if cannot:
        raise ConversionError(
            f"the {layout.name} layout cannot express: {'; '.join(cannot)}",
            layout.expressible.reason,
        )
    items = encode(spec, target_type, layers)
    known = {p for x in LAYOUTS for p, _ in (*x.keys, *x.read_also) if "." not in p}
    nested_home = layout.own_keys and "transformer_layer_config" in layout.own_keys
    written = {path.split(".")[0] for path, _ in layout.keys}
    # A null where the config class wants a number is refused by transformers 5.16 and later;
    # ModelOpt writes null for what it does not know (export/plugins/hf_spec_configs.py:18-62).
    out = {
        k: v
        for k, v in base.items()
        if (k in written and not nested_home if k in known else v is not None or _may_be_null(k))
    }
    out["architectures"] = [layout.architectures[spec.block]]
    if spec.block in layout.model_types:
        out["model_type"] = layout.model_types[spec.block]
    else:
        out.pop("model_type", None)
    if layout is not CANONICAL:
        # Engines read some of these (TensorRT-LLM: next_layer_regular), so the canonical layout
        # keeps them; in another trainer's layout they would name the wrong producer.
        for path in (key for x in LAYOUTS for key in x.own_keys if "." in key):
            if path not in layout.own_keys:
                _put(out, path, OMIT)
    for path, value in layout.fixed.items():
        if path not in base:
            _put(out, path, copy.deepcopy(value))
    for path, item in layout.keys:
        _put(out, path, items[item])
    if isinstance(out.get("eagle_config"), dict) and not out["eagle_config"]:
        del out["eagle_config"]
    return out


def _may_be_null(key: str) -> bool:
    return key.endswith("_token_id")


def _put(config: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        if not isinstance(config.get(parent), dict):
            if value is OMIT:
                return
            config[parent] = {}
        config = config[parent]
    if value is OMIT:
        config.pop(last, None)
    else:
        config[last] = value


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """Where every output tensor comes from.

    Attributes:
        stored: Output name -> source name, carried byte for byte.
        derived: Output name -> tensor that follows from others.
        omitted: Source name -> why the layout does not store it.
    """

    stored: Mapping[str, str]
    derived: Mapping[str, DerivedTensor]
    omitted: Mapping[str, str]


def write_tensors(drafter: Drafter, spec: DrafterSpec, layout: Layout) -> TensorPlan:
    """Account for every tensor of a drafter in another layout.

    Raises:
        ConversionError: The layout has no place for one.
    """
    stored: dict[str, str] = {}
    derived: dict[str, DerivedTensor] = {}
    omitted: dict[str, str] = {}

    def name(canonical: str) -> str:
        return tensor_name(canonical, layout, spec.num_layers)

    for canonical, source in drafter.tensors.items():
        if source in drafter.dropped or canonical in drafter.derived:
            continue
        if canonical in layout.omitted:
            omitted[source] = f"{layout.name} never stores it; d2t implies it (every value checked)"
        else:
            stored[name(canonical)] = source
    derived |= {name(canonical): tensor for canonical, tensor in drafter.derived.items()}
    demanded = layout.required if spec.vocabulary == "full" else layout.derived
    for canonical in demanded:
        if name(canonical) not in stored and name(canonical) not in derived:
            derived[name(canonical)] = _vocabulary_tensor(canonical, drafter, spec)
    return TensorPlan(stored, derived, omitted)


def _vocabulary_tensor(canonical: str, drafter: Drafter, spec: DrafterSpec) -> DerivedTensor:
    count = spec.draft_vocab_size
    if spec.vocabulary == "full":
        ids, why = list(range(count)), "the layout demands it; the vocabulary is full"
    else:
        if "d2t" in drafter.derived:
            data, dtype = drafter.derived["d2t"].data, "I64"
        else:
            source = drafter.tensors["d2t"]
            data, dtype = drafter.checkpoint.read(source), drafter.checkpoint.tensors[source].dtype
        ids = target_ids(integers(data, dtype, "d2t"))
        why = "the layout demands it; d2t implies it"
    if canonical == "t2d":
        return DerivedTensor("BOOL", (spec.vocab_size,), mask_of(ids, spec.vocab_size), why)
    return DerivedTensor("I64", (count,), offsets_of(ids), why)


def tensor_name(canonical: str, layout: Layout, num_layers: int) -> str:
    """Return the name of a canonical tensor in a layout.

    The canonical layout says `midlayer.*` for one layer (every engine reads it) and `layers.N.*`
    for more.

    Raises:
        ConversionError: The layout has no place for it.
    """
    table = layout.names
    if layout.name == "eagle-3.1" and num_layers > 1:
        table = tuple(row for row in table if not row.theirs.startswith("midlayer"))
    name = from_canonical(canonical, table)
    if name is None:
        raise ConversionError(f"the {layout.name} layout has no name for tensor {canonical}")
    return name
