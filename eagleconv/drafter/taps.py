"""Input norm and tapped layers of a drafter."""

from dataclasses import replace

from eagleconv.drafter import aux_layers
from eagleconv.drafter.contradiction import Contradiction
from eagleconv.drafter.evidence import lookup
from eagleconv.drafter.facts import AuxLayers, Fact, Origin, Question, Trap
from eagleconv.drafter.reading import Evidence
from eagleconv.errors import UsageError

_TOP_IDS = "eagle_aux_hidden_state_layer_ids"
_NESTED_IDS = "eagle_config.eagle_aux_hidden_state_layer_ids"


def read_input_norm(r: Evidence) -> Fact:
    """Tensors decide; a flag that contradicts them is reported."""
    per_aux = any(k.startswith("fc_norm.") for k in r.shapes)
    concat = "input_norm.weight" in r.shapes
    value = "both" if per_aux and concat else "per_aux" if per_aux else "concat" if concat else ""
    for item, there in (("fc_norm", per_aux), ("norm_before_fc", concat)):
        said, key = r.get(item)
        if said is True and not there:
            tensor = "fc_norm.*.weight" if item == "fc_norm" else "input_norm.weight"
            r.refuse(
                Contradiction(
                    "ECC004",
                    r.where,
                    f"config.json says {key}: true, but there is no {tensor}",
                    "engines would run with untrained norms; get the tensors, or correct the key "
                    "if the weights were trained without",
                    key=key,
                )
            )
        if there and said is not True:
            r.traps.append(
                Trap(
                    "ECC003",
                    f"{'fc_norm.*' if item == 'fc_norm' else 'input_norm.weight'} is stored, but "
                    f"config.json {f'says {key}: false' if key else f'has no {item}'}: engines "
                    "would drop or refuse it",
                    "upgrade writes the key the tensors ask for",
                    key=item,
                )
            )
    keys = tuple(k for i in ("fc_norm", "norm_before_fc") if (k := r.get(i)[1]))
    return Fact(value or "none", "read", f"{'its' if value else 'no norm'} tensors", keys)


def read_taps(r: Evidence, h: int) -> dict[str, Fact]:
    """Decide A, H and the taps."""
    fc = r.shapes.get("fc.weight")
    one_state = r.get("use_aux_hidden_state")[0] is False
    # ModelOpt writes an empty list then (torch/speculative/eagle/default_config.py:38).
    listed = any(lookup(r.checkpoint.config, path) for path in (_TOP_IDS, _NESTED_IDS))
    if one_state and (fc is not None or listed):
        raise Contradiction(
            "ECC014",
            r.where,
            f"eagle_config.use_aux_hidden_state is false, but there is "
            f"{'an fc.weight' if fc is not None else 'a list of layer ids'}",
            "correct the key: a head fed by the last hidden state has neither",
            key="eagle_config.use_aux_hidden_state",
        )
    if one_state and r.declared.aux_layers is not None:
        raise UsageError(
            "--aux-layers was given, but the drafter is fed by the last hidden state only",
            "leave it out",
        )
    if one_state:
        wide = r.get("target_hidden_size")[0] or h
        aux = AuxLayers(0, None, "last")
        why = "use_aux_hidden_state is false and there is no fc"
        return {
            "aux": Fact(aux, "read", why, ("eagle_config.use_aux_hidden_state",)),
            "target_hidden_size": Fact(wide, "inferred", "the width of the drafter"),
        }
    if fc is None:
        raise Contradiction(
            "ECT002",
            r.where,
            "tensor fc.weight is missing",
            "get the checkpoint",
            tensor="fc.weight",
        )
    width, width_key = r.get("target_hidden_size")
    norms = [k for k in r.shapes if k.startswith("fc_norm.")]
    top, nested = r.ids(_TOP_IDS), r.ids(_NESTED_IDS)
    said, said_key = r.get("num_aux_hidden_states")
    fixed = {x.aux.count for x in r.layouts}
    count = (
        said
        or (len(top) if top is not None else 0)
        or (len(nested) if nested is not None else 0)
        or len(norms)
        or (fc[1] // width if width else 0)
        or (next(iter(fixed)) if len(fixed) == 1 and None not in fixed else 0)
        or (fc[1] // h if fc[1] % h == 0 else 3)
    )
    if width is None and r.target is not None and r.target.hidden_size * count == fc[1]:
        width, width_key = r.target.hidden_size, "target"  # another target is refused elsewhere
    states = width or (fc[1] // count if fc[1] % count == 0 else 0)
    if states * count != fc[1]:
        raise Contradiction(
            "ECC015",
            r.where,
            f"fc.weight takes {fc[1]} values, expected {count} states of "
            f"{states or '?'} ({said_key or width_key or 'counted'})",
            "correct target_hidden_size, num_aux_hidden_states or the layer ids",
            key=said_key or width_key,
        )
    origin: Origin = "target" if width_key == "target" else "read" if width_key else "inferred"
    out = {
        "target_hidden_size": Fact(
            states,
            origin,
            f"fc.weight [{fc[0]}, {fc[1]}] takes {count} states",
            (width_key,) if width_key not in ("", "target") else (),
        )
    }
    layers = r.target.num_layers if r.target else r.get("target_num_layers")[0]
    if r.target is None and "mask_hidden" in r.shapes:
        # Automodel keeps the target's layer count, but not beside parallel drafting
        # (nemo_automodel/recipes/llm/peagle_recipe.py:40).
        layers = None
    if r.declared.aux_layers is not None:
        aux = aux_layers.parse_flag(r.declared.aux_layers, layers, count)
        fact: Fact | Question = Fact(aux, "user", "declared by --aux-layers")
    elif r.ours and (rule := recorded_rule(r, count, layers)) is not None:
        fact = rule
    else:
        fact = aux_layers.read_ids(
            top,
            nested,
            [numbering(x.keys, x.read_also) for x in r.layouts],
            [(x.name, x.aux) for x in r.layouts],
            layers,
            count,
            r.ours,
        )
    if isinstance(fact, Question):
        r.questions.append(fact)
        fact = Fact(AuxLayers(count, None, "default"), "open", fact.text)
    else:
        recorded = lookup(r.checkpoint.manifest or {}, "aux_layers.rule")
        if r.ours and fact.origin == "read" and recorded in ("default", "explicit"):
            fact = replace(fact, value=replace(fact.value, rule=recorded))
        aux_layers.check(fact.value, layers, count)
    return {"aux": fact, **out}


def recorded_rule(r: Evidence, count: int, layers: int | None) -> Fact | None:
    """Return the default rule our manifest recorded where no ids are written."""
    if r.ids(_TOP_IDS) is not None or r.ids(_NESTED_IDS) is not None:
        return None
    manifest = r.checkpoint.manifest or {}
    if lookup(manifest, "aux_layers.rule") != "default":
        return None
    taps = aux_layers.default_boundaries(layers) if layers else None
    return Fact(AuxLayers(count, taps, "default"), "read", "eagleconv.json: the default rule")


def numbering(
    keys: tuple[tuple[str, str], ...], also: tuple[tuple[str, str], ...]
) -> tuple[str, str]:
    """Return the numbering of the (top, nested) id keys under one layout."""
    table = dict((*also, *keys))
    words = {"aux_boundaries": "boundary", "aux_outputs": "output", "aux_sglang": "output"}
    return (
        words[table.get(_TOP_IDS, "aux_boundaries")],
        words[table.get(_NESTED_IDS, "aux_outputs")],
    )
