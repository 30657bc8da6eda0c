"""mlx-vlm from 0.6.5 on, one unpinned reading of its EAGLE-3 drafter."""

from eagleconv.engines.engine import Engine, EngineFact, EngineNote, not_read

_SOURCE = "mlx_vlm/speculative/drafters/eagle3/eagle3.py"
_CONFIG = "mlx_vlm/speculative/drafters/eagle3/config.py"

MLX_VLM = Engine(
    name="mlx-vlm",
    version="unpinned",
    verified=False,
    facts=(
        EngineFact(
            {"input_norm": ("per_aux", "both")},
            "silently wrong",
            "unknown keys are passed over, so fc_norm is ignored",
            _CONFIG,
        ),
        EngineFact(
            {"feedback": ("post_norm",)},
            "silently wrong",
            "unknown keys are passed over, so norm_output is ignored",
            _CONFIG,
        ),
        EngineFact(
            {"aux_rule": ("default",)},
            "silently wrong",
            "default taps are counted from the drafter's layers, not the target's: ids have to be "
            "written",
            _CONFIG,
        ),
        EngineFact(
            {"aux_three": (False,), "aux_rule": ("explicit", "default")},
            "refused",
            "its fc takes three states",
            _SOURCE,
        ),
        EngineFact(
            {"block": ("mla",)}, "refused", "it has no class with latent attention", _SOURCE
        ),
        EngineFact({"block": ("qwen3",)}, "refused", "it has no q/k norms", _SOURCE),
        EngineFact({"fc_bias": (True,)}, "refused", "its fc has no bias", _SOURCE),
        EngineFact({"drafting": ("parallel",)}, "refused", "it has no P-EAGLE class", _SOURCE),
        EngineFact(
            {"rope_scaling": (True,)},
            "silently wrong",
            "of rope it reads the base only; scaling is ignored",
            _SOURCE,
        ),
        EngineFact({"window": (True,)}, "silently wrong", "its attention has no window", _SOURCE),
        EngineFact(
            {"partial_rotary": (True,)}, "silently wrong", "the whole head rotates", _SOURCE
        ),
        EngineFact({"mlp_bias": (True,)}, "refused", "its MLP has no biases", _SOURCE),
        EngineFact(
            {"attention_bias": (True,), "output_bias": (False,)},
            "unknown",
            "attention_bias gives o_proj a bias too; what becomes of it was not read about",
            _SOURCE,
        ),
        *not_read(_SOURCE, "quantized", "aux_rule=last"),
    ),
    notes=(
        EngineNote("It reads the layout of speculators, and no other.", _CONFIG),
        EngineNote("An absent norm_before_residual means false, other than in vLLM.", _CONFIG),
        EngineNote("The drafter's own embed_tokens has to be in the file.", _SOURCE),
    ),
)
