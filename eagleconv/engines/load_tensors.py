"""Load tensors as an engine does: what it drops, refuses, and leaves unloaded."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from eagleconv.drafter import sizes
from eagleconv.drafter.facts import AuxLayers, Mla
from eagleconv.drafter.names import QUANT_SUFFIXES, to_canonical
from eagleconv.engines.deviation import Deviation, Files, Reading, Shape
from eagleconv.engines.loading import Loading


def load_tensors(loading: Loading, files: Files, reading: Reading) -> None:
    """Add what happens to every stored tensor and every parameter."""
    facts = reading.facts
    expected = _parameters(facts, files)
    loaded: set[str] = set()
    for stored, shape in files.shapes.items():
        ignored = next(
            (
                x
                for x in loading.ignored
                if fnmatchcase(stored, x.pattern)
                and all(facts.get(f) in values for f, values in x.when.items())
                and not (x.pattern == "*.bias" and _canonical(stored, loading) in expected)
            ),
            None,
        )
        if ignored is not None:
            if not ignored.harmless:
                reading.deviations.append(
                    Deviation(
                        "tensor dropped",
                        "wrong",
                        f"{{tensor}}: {ignored.reason}",
                        ignored.source,
                        tensor=stored,
                    )
                )
            continue
        name = _canonical(stored, loading)
        suffix = stored.rpartition(".")[2]
        module = (name or "").rpartition(".")[0]
        if name is not None and name in expected:
            wanted = expected[name]
            loaded.add(name)
            # Parallel drafters' mask_hidden is viewed as one row, whatever its rank.
            same = shape == wanted or (name == "mask_hidden" and _values(shape) == _values(wanted))
            if not same and not (files.quantized and len(wanted) == 2):
                reading.deviations.append(
                    Deviation(
                        "tensor refused",
                        "refused",
                        f"{stored} has shape {list(shape)}, it expects {list(wanted)}",
                        "weight loaders assert the shape",
                        tensor=stored,
                    )
                )
        elif files.quantized and suffix in QUANT_SUFFIXES and f"{module}.weight" in expected:
            loaded.add(f"{module}.weight")
        elif name == "d2t" and loading.map_at_full == "ignored":
            continue
        elif loading.unknown == "refused":
            reading.deviations.append(
                Deviation(
                    "tensor refused",
                    "refused",
                    "it has no parameter for {tensor}",
                    loading.unknown_source,
                    tensor=stored,
                )
            )
        else:
            reading.deviations.append(
                Deviation(
                    "tensor dropped",
                    "wrong",
                    "it has no parameter for {tensor} and drops it",
                    loading.unknown_source,
                    tensor=stored,
                )
            )
    for name in expected:
        if name not in loaded:
            _not_loaded(loading, files, reading, name)


def _values(shape: Shape) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _canonical(stored: str, loading: Loading) -> str | None:
    row = to_canonical(stored, loading.names)
    return row[0] if row is not None else None


def _parameters(facts: Mapping[str, Any], files: Files) -> dict[str, Shape]:
    """Return the parameters an engine allocates, by canonical name."""
    vocab = files.target.vocab_size if files.target else files.trained.get("vocab_size")
    norm = {(True, True): "both", (True, False): "per_aux", (False, True): "concat"}
    values = {
        "hidden_size": facts["hidden_size"],
        "target_hidden_size": facts["target_hidden_size"],
        "aux": AuxLayers(facts["count"], None, "default" if facts["use_aux"] else "last"),
        "num_attention_heads": facts["num_attention_heads"],
        "num_key_value_heads": facts["num_key_value_heads"],
        "head_dim": facts["head_dim"],
        "intermediate_size": facts["intermediate_size"],
        "input_norm": norm.get((facts["fc_norm"], facts["norm_before_fc"]), "none"),
        "fc_bias": facts["fc_bias"],
        "own_embedding": True,
        "own_head": True,
        "vocab_size": facts["vocab_size"],
        "draft_vocab_size": facts["draft_vocab_size"],
        "vocabulary": "full" if facts["draft_vocab_size"] == vocab else "reduced",
        "drafting": "parallel" if facts["parallel"] else "chain",
        "num_layers": facts["num_hidden_layers"],
        "block": facts["block"],
        "mla": _mla(files),
    }
    out = sizes.expected_shapes(values)
    members = {"attention_bias": ("q", "k", "v"), "mlp_bias": ("gate", "up", "down")}
    for fact, names in members.items():
        part = "self_attn" if fact == "attention_bias" else "mlp"
        for layer in range(values["num_layers"]) if facts[fact] and facts["block"] != "mla" else ():
            # The llama class takes attention_bias for o_proj too (vLLM models/llama.py:268-271).
            also = ("o",) if fact == "attention_bias" and facts["block"] == "llama" else ()
            for name in (*names, *also):
                module = f"layers.{layer}.{part}.{name}_proj"
                if f"{module}.weight" in out:
                    out[f"{module}.bias"] = out[f"{module}.weight"][:1]
    return out


def _mla(files: Files) -> Mla | None:
    found = files.trained.get("mla")
    if found is not None:
        return found  # type: ignore[no-any-return]
    values = {}
    for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
        value = files.config.get(key)
        values[key] = value if isinstance(value, int) else 0
    rank = files.config.get("q_lora_rank")
    return Mla(q_lora_rank=rank if isinstance(rank, int) else None, **values)


def _not_loaded(loading: Loading, files: Files, reading: Reading, name: str) -> None:
    facts = reading.facts
    rule = next(
        x
        for x in loading.missing
        if fnmatchcase(name, x.pattern) and all(facts.get(f) in v for f, v in x.when.items())
    )
    if rule.effect == "shared":
        if name == "embed_tokens.weight":
            theirs = (
                files.target.hidden_size
                if files.target
                else files.trained.get("target_hidden_size")
            )
            if theirs in (None, facts["hidden_size"]):
                return
            what = (
                f"there is no {name}, and the target's is {theirs} wide, not {facts['hidden_size']}"
            )
        else:
            vocab = files.target.vocab_size if files.target else files.trained.get("vocab_size")
            if files.head_is_embedding:
                what = "the head is the drafter's own embedding, and it shares the target's head"
            elif vocab in (None, facts["draft_vocab_size"]):
                return
            else:
                what = (
                    f"there is no {name}, so the target's head is cut to its first "
                    f"{facts['draft_vocab_size']} rows"
                )
    elif name == "d2t" and files.map_is_identity:
        return
    else:
        what = f"there is no {{tensor}}: {rule.reason}"
    effect: Literal["refused", "wrong"] = "refused" if rule.effect == "refused" else "wrong"
    reading.deviations.append(Deviation("not loaded", effect, what, rule.source, tensor=name))
