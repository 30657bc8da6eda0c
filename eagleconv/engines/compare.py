"""Compare an engine's reading with what was trained."""

import json
from typing import Any

from eagleconv.drafter.aux_layers import default_boundaries
from eagleconv.drafter.facts import AuxLayers
from eagleconv.engines.deviation import Deviation, Files, Reading
from eagleconv.engines.loading import Loading

#: Facts compared as they are: trained fact -> engine's.
_SAME = ("rms_norm_eps", "hidden_act", "num_attention_heads", "head_dim", "window")
#: Engine's flags -> (trained fact, its value when the flag is on, when it is off).
_FLAGS = {
    "norm_output": ("feedback", "post_norm", "pre_norm"),
    "norm_before_residual": ("residual", "normed", "raw"),
}


def compare(loading: Loading, files: Files, reading: Reading, runner: str) -> None:
    """Add every fact the engine takes for something else."""
    facts, trained = reading.facts, files.trained

    def differs(fact: str, ours: Any, theirs: Any, key: str) -> None:
        if fact in files.open_facts:
            reading.deviations.append(
                Deviation(
                    "key",
                    "open",
                    f"it takes {fact} for {_shown(theirs)}, which is open",
                    "",
                    key=key,
                )
            )
        elif ours != theirs:
            reading.deviations.append(
                Deviation(
                    "key",
                    "wrong",
                    f"it takes {fact} for {_shown(theirs)}, trained was {_shown(ours)}",
                    _source(loading, key, facts["block"]),
                    key=key,
                )
            )

    for flag, (fact, on, off) in _FLAGS.items():
        if fact in trained and any(r.fact == flag for r in loading.reads):
            differs(fact, trained[fact], on if facts[flag] else off, flag)
    if "input_norm" in trained:
        norm = {(True, True): "both", (True, False): "per_aux", (False, True): "concat"}.get(
            (facts["fc_norm"], facts["norm_before_fc"]), "none"
        )
        if norm != trained["input_norm"]:
            differs("input_norm", trained["input_norm"], norm, "norm_before_fc")
    if "block" in trained and trained["block"] != facts["block"]:
        differs("block", trained["block"], facts["block"], "architectures")
    for fact in _SAME:
        if (
            fact in trained
            and facts.get(fact) is not None
            and not (facts["block"] == "mla" and fact == "head_dim")
        ):
            if fact == "window" and not loading.reads_window:
                continue  # a fact of the engine's own (EngineFact)
            differs(fact, trained[fact], facts[fact], fact)
    if "rope" in trained:
        rope = trained["rope"]
        ours = (float(rope.theta), dict(rope.scaling) if rope.scaling else None)
        differs("rope", ours, facts["rope"][:2], "rope_theta")
        if rope.partial_rotary_factor != facts["rope"][2]:
            differs("rope", rope.partial_rotary_factor, facts["rope"][2], "partial_rotary_factor")
    if trained.get("drafting") == "parallel" and "mask_token_id" in trained:
        differs(
            "mask_token_id", trained["mask_token_id"], facts.get("mask_token_id"), "mask_token_id"
        )
    if loading.tied_source and files.config.get("tie_word_embeddings") and trained.get("own_head"):
        message = "tie_word_embeddings is true, so it takes the embedding for the head"
        reading.deviations.append(
            Deviation("key", "wrong", message, loading.tied_source, key="tie_word_embeddings")
        )
    if facts.get("logit_scale") not in (None, 1, 1.0):
        message = f"it multiplies the logits by logit_scale {facts['logit_scale']}; no trainer does"
        reading.deviations.append(
            Deviation(
                "key",
                "wrong",
                message,
                _source(loading, "logit_scale", facts["block"]),
                key="logit_scale",
            )
        )
    outside = [i for i in files.map_ids if not -facts["vocab_size"] <= i < facts["vocab_size"]]
    if outside and facts["draft_vocab_size"] != trained.get("vocab_size"):
        message = (
            f"d2t, read as offsets, maps to {outside[0]} of {facts['vocab_size']} ids: an index "
            "error at the first draft"
        )
        reading.deviations.append(
            Deviation("tensor refused", "refused", message, loading.map_source, tensor="d2t")
        )
    elif files.map_values_wrong and facts["draft_vocab_size"] != trained.get("vocab_size"):
        reading.deviations.append(
            Deviation(
                "not loaded", "wrong", files.map_values_wrong, loading.map_source, tensor="d2t"
            )
        )
    if not _target_fits(loading, files, reading):
        return
    one_state = "aux" in trained and trained["aux"].rule == "last"
    if "aux" in trained and one_state == bool(facts["use_aux"]):
        differs("aux", one_state, not facts["use_aux"], "eagle_config.use_aux_hidden_state")
    elif facts["use_aux"]:
        _compare_taps(loading, files, reading, runner)


def _target_fits(loading: Loading, files: Files, reading: Reading) -> bool:
    """Hold the width fc takes against the target's."""
    wide = reading.facts["target_hidden_size"]
    if not reading.facts["use_aux"]:
        wide = reading.facts["hidden_size"]
    if files.target is None or files.target.hidden_size == wide:
        return True
    message = f"fc takes states of {wide} values, the target's have {files.target.hidden_size}"
    source = _source(loading, "target_hidden_size", reading.facts["block"])
    reading.deviations.append(
        Deviation("key", "refused", message, source, key="target_hidden_size")
    )
    return False


def _source(loading: Loading, key: str, block: str) -> str:
    for read in loading.reads:
        if read.fact == key and (not read.blocks or block in read.blocks):
            return read.source
    return "transformers"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _compare_taps(loading: Loading, files: Files, reading: Reading, runner: str) -> None:
    aux: AuxLayers | None = files.trained.get("aux")
    ids = reading.facts.get("ids")
    read = next(r for r in reversed(loading.reads) if r.fact == "ids" and r.runner in ("", runner))
    key = read.homes[0]
    layers = files.target.num_layers if files.target else None
    if ids and not _taps_fit(loading, reading, ids, layers, key, read.source):
        return
    if aux is None or "aux" in files.open_facts:
        taken = "its default" if not ids else f"ids {ids}"
        reading.deviations.append(
            Deviation(
                "key",
                "open",
                f"it taps {taken}; which layers were trained is open",
                read.source,
                key=key,
            )
        )
        return
    if not ids:
        if aux.rule == "default":
            return
        taps: tuple[int, ...] | None = default_boundaries(layers) if layers else None
        if taps is None or taps != aux.boundaries:
            reading.deviations.append(
                Deviation(
                    "key",
                    "wrong" if taps is not None else "open",
                    f"it finds no layer ids where it looks ({', '.join(read.homes)}) and taps "
                    f"boundaries {'2, n//2, n-3' if taps is None else ', '.join(map(str, taps))}; "
                    f"trained were {', '.join(map(str, aux.boundaries or ()))}",
                    read.source,
                    key=key,
                )
            )
        return
    shift = 1 if loading.ids_are == "output" else 0
    taps = tuple(sorted({i + shift for i in ids}))
    expected = aux.boundaries
    if expected is None and layers is not None and aux.rule == "default":
        expected = default_boundaries(layers)
    if expected is not None and taps != tuple(expected):
        reading.deviations.append(
            Deviation(
                "key",
                "wrong",
                f"it taps boundaries {', '.join(map(str, taps))}, trained were "
                f"{', '.join(map(str, expected))}",
                loading.ids_source,
                key=key,
            )
        )


def _taps_fit(
    loading: Loading, reading: Reading, ids: Any, layers: int | None, key: str, source: str
) -> bool:
    """Say whether ids give as many states of the target as fc takes; refuse them otherwise."""
    if not isinstance(ids, list) or any(type(i) is not int for i in ids):
        reading.deviations.append(
            Deviation("key", "refused", f"layer ids are {ids!r}", source, key=key)
        )
        return False
    shift = 1 if loading.ids_are == "output" else 0
    taps = tuple(sorted({i + shift for i in ids}))
    if len(taps) != reading.facts["count"] or (layers is not None and taps[-1] > layers):
        reading.deviations.append(
            Deviation(
                "key",
                "refused",
                f"it taps boundaries {', '.join(map(str, taps))}, which are not "
                f"{reading.facts['count']} of the target's: fc does not fit",
                loading.ids_source,
                key=key,
            )
        )
        return False
    return True
