"""How SGLang reads a drafter's directory. Files are those of the 0.5.23 wheel, under sglang/srt/.

Version ranges were found by reading the same files in the wheels of 0.5.6 and 0.5.10 to 0.5.23.
"""

from eagleconv.drafter.names import Rename, same
from eagleconv.engines.loading import Ignored, KeyRead, Loading, Missing

_LLAMA = "models/llama_eagle3.py"
_IDS = "eagle_aux_hidden_state_layer_ids"

SGLANG_LOADING = Loading(
    engine="sglang",
    architectures={
        "LlamaForCausalLMEagle3": "llama",
        "Eagle3DeepseekV2ForCausalLM": "mla",
    },
    architecture_versions={"Eagle3DeepseekV2ForCausalLM": ">=0.5.12"},
    architecture_source=f"{_LLAMA} (EntryClass), models/kimi_k25_eagle3.py (EntryClass)",
    reads=(
        KeyRead("hidden_size", ("hidden_size",), "=class", "transformers"),
        KeyRead("intermediate_size", ("intermediate_size",), "=class", "transformers"),
        KeyRead("num_hidden_layers", ("num_hidden_layers",), "=class", "transformers"),
        KeyRead("num_attention_heads", ("num_attention_heads",), "=class", "transformers"),
        KeyRead("num_key_value_heads", ("num_key_value_heads",), "=class", "transformers"),
        KeyRead("head_dim", ("head_dim",), "=class", "transformers"),
        KeyRead("vocab_size", ("vocab_size",), "=class", "transformers"),
        KeyRead("rms_norm_eps", ("rms_norm_eps",), "=class", "transformers"),
        KeyRead("hidden_act", ("hidden_act",), "=class", "transformers"),
        KeyRead("max_position_embeddings", ("max_position_embeddings",), "=class", "transformers"),
        KeyRead("draft_vocab_size", ("draft_vocab_size",), "=refused", _LLAMA, null="=vocab_size"),
        KeyRead(
            "target_hidden_size",
            ("target_hidden_size",),
            "=hidden_size",
            _LLAMA,
            null="refused",
        ),
        KeyRead(
            "count",
            ("num_aux_hidden_states", f"len(eagle_config.{_IDS})"),
            3,
            _LLAMA,
            versions=">=0.5.12",
        ),
        KeyRead("count", (), 3, f"{_LLAMA} of 0.5.11", versions="<0.5.12"),
        KeyRead(
            "ids",
            (f"eagle_config.{_IDS}",),
            None,
            "model_executor/model_runner_components/spec_aux_hidden_state.py:185-196",
        ),
        KeyRead("use_aux", ("eagle_config.use_aux_hidden_state",), True, _LLAMA),
        KeyRead("fc_norm", ("fc_norm", "use_aux_norm"), False, _LLAMA, versions=">=0.5.12"),
        KeyRead(
            "norm_before_fc",
            ("eagle_config.norm_before_fc", "norm_before_fc"),
            False,
            _LLAMA,
            blocks=("llama",),
            versions=">=0.5.17",
        ),
        KeyRead("norm_output", ("norm_output",), False, _LLAMA, versions=">=0.5.12"),
        KeyRead("norm_output", (), False, f"{_LLAMA} of 0.5.11", versions="<0.5.12"),
        KeyRead("fc_bias", ("bias",), False, _LLAMA),
    ),
    names=(
        *same("{t}", "fc_norm.{i}", "{b}"),
        Rename("aux_norm_low", "fc_norm.0"),
        Rename("aux_norm_mid", "fc_norm.1"),
        Rename("aux_norm_high", "fc_norm.2"),
        Rename("midlayer.{m}", "layers.0.{m}"),
        *same("layers.{i}.{m}"),
        Rename("model.{t}", "{t}"),
        Rename("model.fc_norm.{i}", "fc_norm.{i}"),
        Rename("model.midlayer.{m}", "layers.0.{m}"),
        Rename("model.layers.{i}.{m}", "layers.{i}.{m}"),
    ),
    ignored=(
        Ignored("*t2d*", "t2d is not read", f"{_LLAMA} load_weights", harmless=True),
        Ignored("*rotary_emb.inv_freq", "rotary buffers are recomputed", _LLAMA, harmless=True),
    ),
    unknown="dropped",
    unknown_source=f"{_LLAMA}:360-378",
    missing=(
        Missing(
            "embed_tokens.weight",
            "shared",
            "the target's embedding is used",
            "speculative/eagle_worker_v2.py:336-369",
        ),
        Missing(
            "lm_head.weight",
            "shared",
            "the target's head is used where draft_vocab_size is null",
            f"{_LLAMA} (load_lm_head_from_target)",
            when={"draft_vocab_size is null": (True,)},
        ),
        Missing("d2t", "wrong", "draft ids are taken for target ids", f"{_LLAMA} load_weights"),
        Missing("*norm*", "wrong", "the norm's gains stay at 1.0", f"{_LLAMA}:360-378"),
        Missing("*", "wrong", "it stays uninitialised", f"{_LLAMA}:360-378"),
    ),
    map_at_full="ignored",
    ids_are="output",
    ids_source="models/llama.py:929-941",
    reads_window=False,
    rope="parameters",
    map_source=f"{_LLAMA} load_weights",
    tied_source=f"{_LLAMA} (tie_word_embeddings)",
)
