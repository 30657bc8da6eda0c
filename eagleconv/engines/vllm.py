"""vLLM 0.32.0. Facts marked "run" were seen by loading drafters on CPU."""

from eagleconv.engines.engine import Engine, EngineFact

VLLM = Engine(
    name="vllm",
    version="0.32.0",
    verified=True,
    serve="vllm serve {target} --speculative-config "
    '\'{{"method": "eagle3", "model": "{drafter}", "num_speculative_tokens": 3}}\'',
    facts=(
        EngineFact(
            {"block": ("mla",), "input_norm": ("concat", "both")},
            "refused",
            "its MLA class has no input_norm",
            "models/deepseek_eagle3.py (run)",
        ),
        EngineFact(
            {"mla_full_rank_q": (True,)},
            "refused",
            "its MLA class needs q_a_proj; a plain q_proj does not load",
            "models/deepseek_eagle3.py:261-265 (run)",
        ),
        EngineFact(
            {"fc_bias": (True,)},
            "silently wrong",
            "a bias of fc is dropped",
            "models/utils.py:458 (run)",
        ),
        EngineFact(
            {"block": ("llama",), "attention_bias": (True,), "output_bias": (False,)},
            "silently wrong",
            "attention_bias makes it allocate o_proj.bias too, which stays uninitialised",
            "models/llama.py:268-271 (run)",
        ),
        EngineFact(
            {"block": ("qwen3",), "output_bias": (True,)},
            "silently wrong",
            "its qwen3 class drops o_proj.bias",
            "models/utils.py:458 (run)",
        ),
        EngineFact(
            {"block": ("qwen3",), "mlp_bias": (True,)},
            "silently wrong",
            "its qwen3 class drops MLP biases",
            "models/utils.py:458 (run)",
        ),
        EngineFact(
            {"mixed_windows": (True,)},
            "refused",
            "layers with and without a window cannot be mixed in one drafter",
            "v1/spec_decode/llm_base_proposer.py:1697 (run)",
        ),
        EngineFact(
            {"aux_rule": ("last",)},
            "silently wrong",
            "the V2 model runner ignores use_aux_hidden_state",
            "v1/worker/gpu/model_runner.py:296-307",
        ),
        EngineFact(
            {"hidden_act": ("gelu", "gelu_pytorch_tanh", "relu", "quick_gelu")},
            "refused",
            "the llama class computes silu only",
            "models/llama.py (run)",
        ),
    ),
)
