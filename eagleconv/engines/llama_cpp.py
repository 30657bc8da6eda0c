"""llama.cpp with its converter, one unpinned reading (after pull request 18039)."""

from eagleconv.engines.engine import Engine, EngineFact, EngineNote, not_read

_CONVERT = "convert_hf_to_gguf.py"
_NAMES = "gguf-py/gguf/tensor_mapping.py"

LLAMA_CPP = Engine(
    name="llama.cpp",
    version="unpinned",
    verified=False,
    facts=(
        EngineFact(
            {"input_norm": ("per_aux", "both")},
            "refused",
            "no tensor of its file format is called fc_norm, so the converter stops",
            _NAMES,
        ),
        EngineFact(
            {"input_norm": ("concat",)},
            "unknown",
            "norm_before_fc needs a build with pull request 25794 (July 2026)",
            "pull request 25794",
        ),
        EngineFact(
            {"feedback": ("post_norm",)},
            "silently wrong",
            "norm_output is dropped by the converter",
            _CONVERT,
        ),
        EngineFact(
            {"custom_taps": (True,)},
            "unknown",
            "builds before pull request 25794 (July 2026) tap the default layers, whatever the ids",
            _CONVERT,
        ),
        EngineFact(
            {"several_layers": (True,)},
            "refused",
            "the converter knows a drafter by its single layer",
            _CONVERT,
        ),
        EngineFact(
            {"aux_three": (False,), "aux_rule": ("explicit", "default")},
            "refused",
            "its metadata has exactly three layers",
            _CONVERT,
        ),
        EngineFact({"block": ("mla",)}, "refused", "it has no latent attention", _NAMES),
        EngineFact({"block": ("qwen3",)}, "refused", "it has no q/k norms", _NAMES),
        EngineFact({"attention_bias": (True,)}, "refused", "it has no q/k/v biases", _NAMES),
        EngineFact({"mlp_bias": (True,)}, "refused", "it has no MLP biases", _NAMES),
        EngineFact({"fc_bias": (True,)}, "refused", "its fc has no bias", _NAMES),
        EngineFact({"drafting": ("parallel",)}, "refused", "it has no P-EAGLE", _CONVERT),
        *not_read(_CONVERT, "partial_rotary", "quantized", "window", "aux_rule=last"),
    ),
    notes=(
        EngineNote("The converter needs --target-model-dir.", _CONVERT),
        EngineNote("Its d2t holds target ids, not offsets; the converter adds.", _CONVERT),
        EngineNote("An absent norm_before_residual means false, other than in vLLM.", _CONVERT),
    ),
)
