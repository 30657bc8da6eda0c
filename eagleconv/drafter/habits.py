"""Facts that config keys alone say: feedback, residual, window, mask token, dtype."""

from eagleconv.checkpoint.dtypes import CONFIG_NAMES
from eagleconv.drafter import meanings
from eagleconv.drafter.contradiction import Contradiction
from eagleconv.drafter.evidence import lookup
from eagleconv.drafter.facts import Fact, Question, Trap
from eagleconv.drafter.names import QUANT_SUFFIXES
from eagleconv.drafter.reading import Evidence
from eagleconv.errors import UsageError


def read_feedback(r: Evidence) -> Fact:
    """See `meanings.feedback`."""
    if r.ours and r.declared.norm_output_meaning is None:
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


def read_window(r: Evidence, layers: int, block: str) -> Fact:
    """Decide the attention window of each layer.

    vLLM 0.32 (run): a flat llama class applies layer_types with sliding_window; a flat qwen3 class
    only with use_sliding_window true, and without layer_types from max_window_layers on.
    """
    kinds, key = r.get("layer_types")
    size, size_key = r.get("sliding_window")
    use, use_key = r.get("use_sliding_window")
    keys = tuple(k for k in (key, size_key, use_key) if k)
    if r.declared.attention_window is not None:
        window = (r.declared.attention_window or None,) * layers
        return Fact(window, "user", "--attention-window", keys)
    full = Fact((None,) * layers, "read", "no window in the config", keys)
    if kinds is None:
        if block == "qwen3" and use is True and size:
            return _ask_window(r, size, "sliding windows are on, and no layer_types says where")
        return full
    if all(kind == "full_attention" for kind in kinds):
        return full
    if len(kinds) != layers or any(
        kind not in ("full_attention", "sliding_attention") for kind in kinds
    ):
        said = f"layer_types is {kinds[:4]} for {layers} layers, the target's perhaps"
        return _ask_window(r, size, said)
    if not size:
        return _ask_window(r, size, "layer_types says sliding, and sliding_window no size")
    if use is False or (use is None and block == "qwen3"):
        return _ask_window(
            r, size, f"layer_types says sliding, and use_sliding_window is {use or 'not true'}"
        )
    copied = [x.producer for x in r.layouts if x.full_attention]
    if copied:
        producers = " / ".join(dict.fromkeys(copied))
        return _ask_window(
            r, size, f"{producers} train with full attention and may have copied the target's keys"
        )
    window = tuple(size if kind == "sliding_attention" else None for kind in kinds)
    return Fact(window, "read", "layer_types and sliding_window", keys)


def _ask_window(r: Evidence, size: int | None, why: str) -> Fact:
    question = Question(
        "attention window",
        f"Whether the drafter was trained with an attention window is open: {why}.",
        f"--attention-window 0 (full) or --attention-window {size or 'N'}",
    )
    r.questions.append(question)
    return Fact(None, "open", question.text)


def read_mask_token(r: Evidence, parallel: bool, vocab_size: int) -> Fact:
    """P-EAGLE needs a mask token id, which SpecForge never writes.

    Raises:
        UsageError: One was declared for a drafter without parallel drafting.
        SourceError: It is outside the vocabulary.
    """
    declared = r.declared.mask_token_id
    if not parallel:
        if declared is not None:
            raise UsageError(
                "--mask-token-id was given, but the drafter has no mask_hidden: it drafts one "
                "token at a time",
                "leave it out",
            )
        return Fact(None, "read", "chain drafting")
    said = {
        key: value
        for key in ("mask_token_id", "pard_token", "ptd_token_id")
        if (value := r.checkpoint.config.get(key)) is not None
    }
    value, key = r.get("mask_token_id")
    if value is None:
        value, key = r.checkpoint.side_data.get("peagle_mask_token_id"), "the side file"
    if declared is not None:
        value, key = declared, "declared by --mask-token-id"
    elif value is None or len(set(said.values())) > 1:
        why = (
            f"the keys differ: {said}" if said else "SpecForge keeps it in its training state only"
        )
        question = Question(
            "mask token",
            f"P-EAGLE drafts with a mask token, and which is open: {why}.",
            "--mask-token-id ID",
        )
        r.questions.append(question)
        return Fact(None, "open", question.text)
    if not 0 <= value < vocab_size:
        raise Contradiction(
            "ECV015",
            r.where,
            f"mask token {value} ({key}) is outside the target's {vocab_size} ids",
            "give the right one by --mask-token-id",
            key=key,
        )
    return Fact(value, "user" if declared is not None else "read", key)


def read_quantization(r: Evidence) -> Fact:
    """Read the drafter's own quantisation; the target's, copied, is none.

    Raises:
        SourceError: config.json has one and no tensor shows it.
    """
    config, key = r.get("quantization_config")
    if not config:
        return Fact(None, "read", "none", (key,) if key else ())
    quantized = [
        name
        for name, stored in r.tensors.items()
        if name.rpartition(".")[2] in QUANT_SUFFIXES
        or r.checkpoint.tensors[stored].dtype.startswith(("F8", "F4", "F6"))
    ]
    if not quantized:
        raise Contradiction(
            "ECQ001",
            r.where,
            "config.json has quantization_config, but no tensor has a scale, a packed "
            "weight or an 8-bit dtype",
            "remove it if it was copied from the target; engines would read the weights wrongly",
            key=key,
        )
    return Fact(config, "read", f"quantization_config, and tensors like {quantized[0]}", (key,))


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
                f"config.json says {key} {said}, the tensors are {stored}",
                "upgrade writes what the tensors are",
                key=key,
            )
        )
    return Fact(stored, "read", "dtype of the tensors", (key,) if key else ())
