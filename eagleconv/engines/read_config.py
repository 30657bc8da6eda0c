"""Read a config.json as an engine does: flatten it, choose the class, take every key."""

import json
from collections.abc import Mapping
from typing import Any

from eagleconv.drafter.evidence import architecture, lookup
from eagleconv.drafter.item_kinds import KIND_OF, kind_problem
from eagleconv.drafter.model_types import MODEL_TYPE_DEFAULTS
from eagleconv.drafter.rope import normal_scaling
from eagleconv.engines.deviation import Deviation, Files, Reading
from eagleconv.engines.loading import KeyRead, Loading

#: Sizes of the config classes where a key is absent. Source: transformers 5.24.0.
_CLASS_SIZES: Mapping[str, Mapping[str, int]] = {
    "llama": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
    },
    "qwen3": {
        "hidden_size": 4096,
        "intermediate_size": 22016,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "vocab_size": 151936,
    },
}
_MISSING = object()


def read_config(
    loading: Loading, files: Files, reading: Reading, version: str, runner: str
) -> None:
    """Fill a reading with what an engine takes the drafter for, or with why it is refused."""
    flat = _flatten(loading, files, reading, version)
    if flat is None:
        return
    block = _block(loading, flat, reading, version)
    if block is None:
        return
    reading.facts["block"] = block
    _read_keys(loading, flat, files, reading, version, runner)
    if not reading.refused:
        _read_rope(loading, flat, reading)
    if not reading.refused:
        _read_window(loading, flat, reading)


def _flatten(
    loading: Loading, files: Files, reading: Reading, version: str
) -> dict[str, Any] | None:
    config = files.config
    kind = str(config.get("speculators_model_type"))
    if "speculators_config" not in config and "transformer_layer_config" not in config:
        flat = dict(config)
    elif not loading.nested:
        reading.deviations.append(
            Deviation(
                "config",
                "refused",
                "it does not read the speculators layout",
                loading.architecture_source,
                key="speculators_model_type",
            )
        )
        return None
    elif kind not in loading.nested or not holds(loading.nested[kind].versions, version):
        reading.deviations.append(
            Deviation(
                "config",
                "refused",
                f"speculators_model_type {kind!r} is none of "
                f"{', '.join(k for k, n in loading.nested.items() if holds(n.versions, version))}",
                next(iter(loading.nested.values())).source,
                key="speculators_model_type",
            )
        )
        return None
    else:
        nested = loading.nested[kind]
        base = config.get(nested.base)
        flat = dict(base) if isinstance(base, Mapping) else {}
        for lift in nested.lifts:
            if not holds(lift.versions, version):
                continue
            if lift.key in config and (config[lift.key] is not None or lift.absent == "default"):
                flat[lift.to] = config[lift.key]
            elif lift.absent == "default":
                flat[lift.to] = lift.default
        model_type = str(flat.get("model_type", "llama"))
        classes = {
            known: name
            for known, name in nested.architectures.items()
            if holds(nested.architecture_versions.get(name, ""), version)
        }
        if model_type not in classes:
            reading.deviations.append(
                Deviation(
                    "config",
                    "refused",
                    f"transformer_layer_config.model_type {model_type!r} is none of "
                    f"{', '.join(classes)}",
                    nested.source,
                    key="transformer_layer_config.model_type",
                )
            )
            return None
        flat["architectures"] = [classes[model_type]]
        flat["model_type"] = model_type
        return flat
    if flat.get("model_type") is None and loading.no_model_type == "refused":
        _refuse_config(reading, "config.json has no model_type", "transformers", "model_type")
        return None
    model_type = str(flat.get("model_type", "llama"))
    if model_type in loading.refused_model_types:
        why = loading.refused_model_types[model_type]
        _refuse_config(reading, f"model_type {model_type}: {why}", "run", "model_type")
        return None
    if model_type not in MODEL_TYPE_DEFAULTS and loading.needs_class:
        reading.deviations.append(
            Deviation(
                "config",
                "open",
                f"whether its transformers knows model_type {model_type!r} is not known here",
                "transformers",
                key="model_type",
            )
        )
    return flat


def _refuse_config(reading: Reading, message: str, source: str, key: str) -> None:
    reading.deviations.append(Deviation("config", "refused", message, source, key=key))


def _block(loading: Loading, flat: Mapping[str, Any], reading: Reading, version: str) -> str | None:
    name = architecture(flat)
    prefix = loading.prefix
    if prefix and name and not (name.startswith(prefix) or name.endswith(prefix)):
        # Not for names the speculators reader wrote, which the engine takes as they are.
        name = (
            name if name in loading.architectures and name.startswith("Peagle") else prefix + name
        )
    if name not in loading.architectures or not holds(
        loading.architecture_versions.get(name, ""), version
    ):
        reading.deviations.append(
            Deviation(
                "architecture",
                "refused",
                f"architectures {flat.get('architectures')} is none it has"
                + (f" ({name} after its rewriting)" if name != architecture(flat) else ""),
                loading.architecture_source,
                key="architectures",
            )
        )
        return None
    return loading.architectures[name]


def _value(path: str, flat: Mapping[str, Any]) -> Any:
    if path.startswith("len("):
        found = lookup(flat, path[4:-1])
        return len(found) if isinstance(found, list) and found else _MISSING
    return lookup(flat, path, _MISSING)


def _read_keys(
    loading: Loading,
    flat: Mapping[str, Any],
    files: Files,
    reading: Reading,
    version: str,
    runner: str,
) -> None:
    facts = reading.facts
    reads: dict[str, KeyRead] = {}
    for read in loading.reads:
        fits = (not read.blocks or facts["block"] in read.blocks) and holds(read.versions, version)
        if fits and read.runner in ("", runner):
            reads[read.fact] = read  # a runner's own row comes after the general one
    model_type = str(flat.get("model_type", "llama"))
    for fact, read in reads.items():
        value = _MISSING
        for home in read.homes:
            found = _value(home, flat)
            if found is None and read.null == "refused":
                message = f"{home} is null, and it computes with it"
                _refuse_config(reading, message, read.source, home)
                return
            if found is None and read.null.startswith("="):
                facts[f"{fact} is null"] = True
                found = facts.get(read.null[1:], _MISSING)
            if found is not None and found is not _MISSING and not (fact == "ids" and not found):
                value = found
                break
        if value is _MISSING:
            value = _default(fact, read, model_type, facts)
        item = "num_aux_hidden_states" if fact == "count" else fact
        if KIND_OF.get(item) not in ("flag", None) and value is not None:
            problem = kind_problem(item, value)
            if problem and value != "=refused":
                message = f"{fact} is {json.dumps(value)[:60]}, {problem}"
                _refuse_config(reading, message, read.source, fact)
                return
        if value == "=refused":
            _refuse_config(reading, f"config.json has no {fact}", read.source, fact)
            return
        facts[fact] = value
    # Facts no class of this engine reads are off to it.
    for fact in ("fc_norm", "norm_before_fc", "norm_output", "norm_before_residual", "fc_bias"):
        facts[fact] = bool(facts.get(fact, False))
    facts.setdefault("attention_bias", False)
    facts.setdefault("mlp_bias", False)
    parallel = "mask_hidden" in files.shapes or (
        files.config.get("speculators_model_type") == "peagle"
    )
    facts["parallel"] = parallel
    if parallel and "mask_token_id" in reads and facts["mask_token_id"] is None:
        message = "parallel drafting without a mask token id"
        _refuse_config(reading, message, reads["mask_token_id"].source, "mask_token_id")


def _default(fact: str, read: KeyRead, model_type: str, facts: Mapping[str, Any]) -> Any:
    if read.default != "=class":
        if isinstance(read.default, str) and read.default.startswith("="):
            return facts.get(read.default[1:], read.default)
        return read.default
    implied = MODEL_TYPE_DEFAULTS.get(model_type, {})
    sizes_ = _CLASS_SIZES.get(model_type, {})
    if fact in implied:
        return implied[fact]
    if fact in sizes_:
        return sizes_[fact]
    if fact == "num_key_value_heads":
        return facts.get("num_attention_heads")
    if fact == "head_dim":
        heads, hidden = facts.get("num_attention_heads"), facts.get("hidden_size")
        return hidden // heads if heads and hidden else None
    return None


def holds(versions: str, version: str) -> bool:
    """Say whether a version is among those a fact holds for."""
    if not versions:
        return True
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(versions).contains(version, prereleases=True)


def _read_rope(loading: Loading, flat: Mapping[str, Any], reading: Reading) -> None:
    """Decide base and scaling as the engine's transformers does (see drafter/rope.py)."""
    scaling, parameters = flat.get("rope_scaling"), flat.get("rope_parameters")
    order = [scaling, parameters] if loading.rope == "scaling" else [parameters, scaling]
    used = next((x for x in order if isinstance(x, Mapping) and x), None) or {}
    if any(isinstance(v, Mapping) for v in used.values()):
        where = "rope_scaling" if used is scaling else "rope_parameters"
        _refuse_config(reading, f"{where} has one entry per attention type", "run", where)
        return
    implied = MODEL_TYPE_DEFAULTS.get(str(flat.get("model_type", "llama")), {}).get("rope", {})
    for key in ("rope_theta", "factor", "partial_rotary_factor"):
        value = used.get(key, flat.get(key))
        if value is not None and kind_problem("rope_theta", value):
            _refuse_config(reading, f"rope {key} is {json.dumps(value)[:60]}", "run", "rope_theta")
            return
    theta = used.get("rope_theta", flat.get("rope_theta"))
    if theta is None:
        theta = implied.get("rope_theta", 10000.0)
    share = used.get("partial_rotary_factor", flat.get("partial_rotary_factor"))
    normal = normal_scaling(used)
    if not used and flat.get("rope_theta") is None:
        normal = normal_scaling(implied)
    kind = (normal or {}).get("rope_type", "default")
    if loading.rope_types and kind not in loading.rope_types:
        message = f"rope_type {kind!r} is none it has"
        _refuse_config(reading, message, loading.rope_source, "rope_parameters")
        return
    reading.facts["rope"] = (float(theta), normal, float(share if share is not None else 1.0))


def _read_window(loading: Loading, flat: Mapping[str, Any], reading: Reading) -> None:
    layers = reading.facts["num_hidden_layers"] or 0
    kinds, size = flat.get("layer_types"), flat.get("sliding_window")
    flagged = flat.get("use_sliding_window") is True
    honoured = loading.reads_window and (
        flagged or reading.facts["block"] not in loading.window_needs_flag
    )
    window: list[int | None] = [None] * layers
    if honoured and isinstance(kinds, list) and size:
        window = [
            size if i < len(kinds) and kinds[i] == "sliding_attention" else None
            for i in range(layers)
        ]
    reading.facts["window"] = tuple(window)
