"""Facts that config keys alone say: feedback, residual, window, mask token, dtype."""

from eagleconv.checkpoint.dtypes import CONFIG_NAMES
from eagleconv.drafter import meanings
from eagleconv.drafter.evidence import lookup
from eagleconv.drafter.facts import Fact, Question, Trap
from eagleconv.drafter.reading import Evidence


def read_feedback(r: Evidence) -> Fact:
    """See `meanings.feedback`."""
    if r.ours:
        value, key = r.get("norm_output")
        word = "post_norm" if value else "pre_norm"
        return Fact(word, "read", "norm_output, written by eagleconv", (key,) if key else ())
    value, key = r.get("norm_output")
    if value is None:
        value, key = r.get("norm_output_head")
    fact = meanings.feedback(
        r.layouts,
        value,
        key,
        r.declared.norm_output_meaning,
        lookup(r.checkpoint.config, "norm_before_residual") is not None,
    )
    if isinstance(fact, Question):
        r.questions.append(fact)
        return Fact(None, "open", fact.text, (key,))
    return fact


def read_residual(r: Evidence) -> Fact:
    """See `meanings.residual`."""
    value, key = r.get("norm_before_residual")
    fact = meanings.residual(
        [] if r.ours else r.layouts, value, key, r.declared.norm_before_residual
    )
    if isinstance(fact, Question):
        r.questions.append(fact)
        return Fact(None, "open", fact.text)
    return fact


def read_window(r: Evidence, layers: int) -> Fact:
    """Decide the attention window of each layer."""
    kinds, key = r.get("layer_types")
    size, size_key = r.get("sliding_window")
    declared = r.declared.attention_window
    keys = tuple(k for k in (key, size_key) if k)
    if declared is not None:
        return Fact((declared or None,) * layers, "user", "--attention-window", keys)
    asks = bool(size) and isinstance(kinds, list) and "sliding_attention" in kinds[:layers]
    if not asks:
        return Fact((None,) * layers, "read", "no window in the config", keys)
    if all(x.full_attention for x in r.layouts):
        producers = " / ".join(dict.fromkeys(x.producer for x in r.layouts))
        question = Question(
            "attention window",
            f"config.json asks for a window of {size}, which vLLM applies; {producers} train "
            "with full attention and may have copied the keys from the target.",
            f"--attention-window 0 (full) or --attention-window {size}",
        )
        r.questions.append(question)
        return Fact(None, "open", question.text, keys)
    window = tuple(size if kind == "sliding_attention" else None for kind in kinds[:layers])
    return Fact(window, "read", "layer_types and sliding_window", keys)


def read_mask_token(r: Evidence, parallel: bool) -> Fact:
    """P-EAGLE needs a mask token id, which SpecForge never writes."""
    value, key = r.get("mask_token_id")
    if value is None:
        value, key = r.checkpoint.side_data.get("peagle_mask_token_id"), "the side file"
    if r.declared.mask_token_id is not None:
        return Fact(r.declared.mask_token_id, "user", "declared by --mask-token-id")
    if not parallel or value is not None:
        return Fact(value, "read", key) if parallel else Fact(None, "read", "chain drafting")
    question = Question(
        "mask token",
        "P-EAGLE drafts with a mask token, and config.json has no mask_token_id, pard_token or "
        "ptd_token_id (SpecForge keeps it in its training state only).",
        "--mask-token-id ID",
    )
    r.questions.append(question)
    return Fact(None, "open", question.text)


def read_dtype(r: Evidence) -> Fact:
    """Name the dtype most bytes are stored in, and a config that says another."""
    sizes_: dict[str, int] = {}
    for name in r.tensors.values():
        info = r.checkpoint.tensors[name]
        sizes_[info.dtype] = sizes_.get(info.dtype, 0) + info.nbytes
    floats = {k: n for k, n in sizes_.items() if k in CONFIG_NAMES}
    stored = CONFIG_NAMES[max(floats, key=lambda k: floats[k])] if floats else "bfloat16"
    said, key = r.get("dtype")
    if said is not None and said != stored and not r.get("quantization_config")[0]:
        r.traps.append(
            Trap(
                "ECC008",
                "dtype-key-differs",
                "warning",
                f"config.json says {key} {said}, the tensors are {stored}",
                "upgrade writes what the tensors are",
                key,
            )
        )
    return Fact(stored, "read", "dtype of the tensors", (key,) if key else ())
