"""SGLang 0.5.23, read."""

from eagleconv.engines.engine import Engine, EngineFact

SGLANG = Engine(
    name="sglang",
    version="0.5.23",
    verified=True,
    serve="python -m sglang.launch_server --model-path {target} --speculative-algorithm EAGLE3 "
    "--speculative-draft-model-path {drafter} --speculative-num-steps 3 "
    "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
    facts=(
        EngineFact(
            {"residual": ("normed",)},
            "silently wrong",
            "norm_before_residual is never read; the residual stays raw",
            "srt/models/llama_eagle3.py (no occurrence)",
        ),
        EngineFact(
            {"block": ("qwen3",)},
            "refused",
            "it has no EAGLE-3 class with q/k norms",
            "srt/models/llama_eagle3.py:387, kimi_k25_eagle3.py",
        ),
        EngineFact(
            {"drafting": ("parallel",)},
            "refused",
            "it has no P-EAGLE class",
            "srt/models (no occurrence)",
        ),
        EngineFact(
            {"several_layers": (True,)},
            "silently wrong",
            "layers above the first read hidden_norm, not input_layernorm",
            "srt/models/llama_eagle3.py",
        ),
        EngineFact(
            {"attention_bias": (True,)},
            "silently wrong",
            "q/k/v biases are dropped",
            "srt/models/llama_eagle3.py",
        ),
        EngineFact(
            {"window": (True,)},
            "silently wrong",
            "layer_types is ignored; only --speculative-draft-window-size sets a window",
            "srt/models/llama_eagle3.py",
        ),
        EngineFact(
            {"own_embedding_same_width": (True,)},
            "silently wrong",
            "the drafter's embedding is replaced by the target's; harmless only if they are equal",
            "srt/models/llama.py:910-917, speculative/eagle_worker_v2.py:336-369",
        ),
        EngineFact(
            {"taps_embedding": (True,)},
            "refused",
            "boundary 0 (the embedding) has no form in its numbering",
            "srt/models/llama.py:929-941",
        ),
        EngineFact(
            {"taps_last": (True,), "block": ("llama", "qwen3")},
            "silently wrong",
            "a llama target never captures its last boundary",
            "srt/models/llama.py",
        ),
        EngineFact(
            {"partial_rotary": (True,)},
            "silently wrong",
            "partial_rotary_factor is read as an attribute transformers 5 no longer has, so the "
            "whole head rotates",
            "srt/models/llama.py:199",
        ),
        EngineFact(
            {"block": ("mla",), "input_norm": ("concat", "both")},
            "silently wrong",
            "its MLA class ignores norm_before_fc",
            "srt/models/kimi_k25_eagle3.py",
        ),
    ),
)
