"""SGLang 0.4.10 to 0.5.23, read. Files are those of its wheel, under sglang/."""

from eagleconv.engines.engine import Engine, EngineFact, EngineNote

_LLAMA = "srt/models/llama_eagle3.py"
_MLA = "srt/models/kimi_k25_eagle3.py"
_TARGET = "srt/models/llama.py"
_PER_AUX = ("per_aux", "both")
_CONCAT = ("concat", "both")
#: Targets whose class takes ids as they are, unless the first is 1.
_FIRST_ID_DECIDES = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe_lite")

_BLOCKS = (
    EngineFact(
        {"block": ("qwen3",)},
        "refused",
        "it has no EAGLE-3 class with q/k norms",
        f"{_LLAMA}:387",
        absent_symbol="q_norm",
    ),
    EngineFact(
        {"block": ("mla",)},
        "refused",
        "it has no EAGLE-3 class with latent attention before 0.5.12",
        _MLA,
        versions="<0.5.12",
        absent_symbol="Eagle3DeepseekV2ForCausalLM",
    ),
    EngineFact(
        {"mla_full_rank_q": (True,)},
        "refused",
        "its MLA class requires q_lora_rank",
        f"{_MLA}:116-119",
        symbol="Eagle3 MLA layer requires q_lora_rank",
    ),
    EngineFact(
        {"several_layers": (True,), "block": ("mla",)},
        "refused",
        "its MLA class has one layer",
        f"{_MLA}:231",
        symbol="EAGLE3 currently only supports 1 layer",
    ),
    EngineFact(
        {"several_layers": (True,), "block": ("llama", "qwen3")},
        "silently wrong",
        "layers above the first read hidden_norm, not input_layernorm",
        f"{_LLAMA}:101-103",
        versions=">=0.5.12",
        symbol="hidden_states, residual = self.hidden_norm(hidden_states, residual)",
    ),
    EngineFact(
        {"several_layers": (True,), "block": ("llama", "qwen3")},
        "refused",
        "it supports one layer before 0.5.12",
        _LLAMA,
        versions="<0.5.12",
        symbol="EAGLE3 currently only supports 1 layer",
    ),
    EngineFact(
        {"drafting": ("parallel",)},
        "silently wrong",
        "it has no parallel drafting (P-EAGLE): mask_hidden is dropped, and it drafts in a chain",
        _LLAMA,
        absent_symbol="mask_hidden",
    ),
    EngineFact(
        {"hidden_act": ("gelu", "gelu_pytorch_tanh", "relu", "quick_gelu")},
        "refused",
        "it computes silu only",
        f"{_TARGET}:105-108",
        symbol="Only silu is supported for now",
    ),
)

_NORMS = (
    EngineFact(
        {"residual": ("normed",)},
        "silently wrong",
        "norm_before_residual is never read; the residual stays raw",
        _LLAMA,
        absent_symbol="norm_before_residual",
    ),
    EngineFact(
        {"input_norm": _PER_AUX, "block": ("llama", "qwen3")},
        "silently wrong",
        "fc_norm needs 0.5.12: it is not read before, and its tensors are dropped",
        _LLAMA,
        versions="<0.5.12",
        absent_symbol='"fc_norm"',
    ),
    EngineFact(
        {"input_norm": _PER_AUX, "block": ("mla",)},
        "silently wrong",
        "fc_norm needs 0.5.13 with latent attention: its tensors are dropped before",
        _MLA,
        versions="<0.5.13",
        absent_symbol='"fc_norm"',
    ),
    EngineFact(
        {"feedback": ("post_norm",), "block": ("llama", "qwen3")},
        "silently wrong",
        "norm_output needs 0.5.12: it is not read before, and what is fed back stays pre-norm",
        _LLAMA,
        versions="<0.5.12",
        absent_symbol='"norm_output"',
    ),
    EngineFact(
        {"feedback": ("post_norm",), "block": ("mla",)},
        "silently wrong",
        "norm_output needs 0.5.13 with latent attention: what is fed back stays pre-norm before",
        _MLA,
        versions="<0.5.13",
        absent_symbol='"norm_output"',
    ),
    EngineFact(
        {"input_norm": _CONCAT, "block": ("llama", "qwen3")},
        "silently wrong",
        "norm_before_fc needs 0.5.17: it is not read before, and input_norm is dropped",
        _LLAMA,
        versions="<0.5.17",
        absent_symbol="norm_before_fc",
    ),
    EngineFact(
        {"input_norm": _CONCAT, "block": ("mla",)},
        "silently wrong",
        "its MLA class ignores norm_before_fc",
        _MLA,
        absent_symbol="norm_before_fc",
    ),
)

_TAPS = (
    EngineFact(
        {"aux_three": (False,), "aux_rule": ("explicit", "default"), "block": ("llama", "qwen3")},
        "refused",
        "fc takes three states, whatever the config says, before 0.5.12",
        _LLAMA,
        versions="<0.5.12",
        absent_symbol="num_aux_hidden_states",
    ),
    EngineFact(
        {"taps_as_wide": (True,)},
        "silently wrong",
        "fc and the norms before it are left out where all taps are as wide as the drafter",
        f"{_LLAMA}:229",
        symbol="if hidden_states.shape[-1] != embeds.shape[-1]",
    ),
    EngineFact(
        {"aux_rule": ("last",)},
        "silently wrong",
        "use_aux_hidden_state needs 0.5.8: it is not read before, and three states are handed over",
        "srt/model_executor/model_runner.py",
        versions="<0.5.8",
    ),
    EngineFact(
        {"taps_embedding": (True,)},
        "refused",
        "boundary 0 (the embedding) has no form in its numbering",
        f"{_TARGET}:929-941",
        symbol="self.model.layers_to_capture = [val + 1 for val in layer_ids]",
    ),
    EngineFact(
        {
            "taps_last": (True,),
            "block": ("llama", "qwen3"),
            "target_type": (None, "llama", "qwen2", "qwen3", "qwen3_moe", "glm4", "glm4_moe"),
        },
        "refused",
        "most targets (llama and qwen among them) never capture their last boundary, so fc does not "
        "fit at the first request",
        f"{_TARGET}:486-494",
        symbol="if i in self.layers_to_capture",
    ),
    EngineFact(
        {"first_tap": (1,), "target_type": _FIRST_ID_DECIDES},
        "silently wrong",
        "this target takes ids as they are unless the first is 1, so taps that start at boundary 1 "
        "have no form",
        "srt/models/deepseek_v2.py:3471",
        versions=">=0.5.13",
        symbol="if layer_ids and layer_ids[0] == 1",
    ),
)

_TENSORS = (
    EngineFact(
        {"attention_bias": (True,)},
        "silently wrong",
        "q/k/v biases are dropped",
        f"{_LLAMA}:64-74",
        symbol="bias=False",
    ),
    EngineFact(
        {"mlp_bias": (True,)},
        "silently wrong",
        "MLP biases are dropped",
        f"{_TARGET}:87-104",
        absent_symbol="mlp_bias",
    ),
    EngineFact(
        {"own_embedding_same_width": (True,)},
        "silently wrong",
        "the drafter's embedding is replaced by the target's; harmless only if they are equal",
        f"{_TARGET}:910-917, srt/speculative/eagle_worker_v2.py:336-369",
        symbol="and self.config.target_hidden_size != self.config.hidden_size",
    ),
    EngineFact(
        {"own_head": (False,), "vocabulary": ("full",)},
        "refused",
        "the target's head is shared (draft_vocab_size null) from 0.5.2 on only",
        _LLAMA,
        versions="<0.5.2",
        absent_symbol="load_lm_head_from_target",
    ),
    EngineFact(
        {"window": (True,)},
        "silently wrong",
        "layer_types is ignored; only --speculative-draft-window-size sets a window",
        _LLAMA,
        absent_symbol="layer_types",
    ),
    EngineFact(
        {"partial_rotary": (True,)},
        "silently wrong",
        "partial_rotary_factor is read beside rope_parameters and not inside, so the whole head "
        "rotates",
        f"{_TARGET}:199",
        symbol='getattr(config, "partial_rotary_factor", 1)',
    ),
)

SGLANG = Engine(
    name="sglang",
    version="0.5.23",
    verified=True,
    oldest="0.4.10",
    newest="0.5.23",
    package="sglang",
    serve="python -m sglang.launch_server --model-path {target} --speculative-algorithm EAGLE3 "
    "--speculative-draft-model-path {drafter} --speculative-num-steps 3 "
    "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
    facts=(*_BLOCKS, *_NORMS, *_TAPS, *_TENSORS),
    notes=(
        EngineNote(
            "A drafter takes the target's --quantization unless "
            "--speculative-draft-model-quantization says otherwise (unquant switches it off).",
            "srt/arg_groups/serving_hook.py:675-712",
            versions=">=0.5.8",
            symbol="speculative_draft_model_quantization=cfg.quantization",
        ),
        EngineNote(
            "A context longer than the drafter's max_position_embeddings is refused unless "
            "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1.",
            "srt/configs/model_config.py:1291-1318",
            symbol="SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
        ),
        EngineNote(
            "A quantised fc is not read: fc is a plain matrix in the llama class, and kv_b_proj has "
            "to be in floats in the MLA class.",
            _LLAMA,
            symbol="self.fc = torch.nn.Linear(",
        ),
        EngineNote(
            "--speculative-token-map is ignored: the map is the drafter's d2t.",
            "srt/speculative/eagle_worker_v2.py:323-330",
            symbol="EAGLE3 models already have this",
        ),
        EngineNote(
            "Layer ids are those in eagle_config; if they cannot be read, the default layers are "
            "tapped without a word.",
            "srt/model_executor/model_runner_components/spec_aux_hidden_state.py:185-196",
            versions=">=0.5.16",
            symbol="config.eagle_aux_hidden_state_layer_ids = None",
        ),
        EngineNote(
            "Tensors of the layer are read from midlayer.* only before 0.5.12; those of layers.0.* "
            "are dropped.",
            _LLAMA,
            versions="<0.5.12",
            symbol="self.midlayer",
        ),
    ),
)
