"""ATOM, one unpinned reading of `atom/models/eagle3_llama.py`."""

from eagleconv.engines.engine import Engine, EngineFact, not_read

_SOURCE = "atom/models/eagle3_llama.py"

ATOM = Engine(
    name="atom",
    version="unpinned",
    verified=False,
    facts=(
        EngineFact(
            {"vocabulary": ("reduced",)},
            "refused",
            "lm_head has vocab_size rows and there is no d2t, so a reduced vocabulary does not fit",
            _SOURCE,
        ),
        EngineFact(
            {"residual": ("normed",)},
            "silently wrong",
            "norm_before_residual is never read",
            _SOURCE,
        ),
        EngineFact(
            {"input_norm": ("concat", "both")},
            "unknown",
            "norm_before_fc was not found",
            _SOURCE,
        ),
        EngineFact({"several_layers": (True,)}, "refused", "it has one layer", _SOURCE),
        EngineFact({"block": ("qwen3",)}, "refused", "it has no class with q/k norms", _SOURCE),
        EngineFact({"attention_bias": (True,)}, "refused", "it has no q/k/v biases", _SOURCE),
        EngineFact({"fc_bias": (True,)}, "refused", "its fc has no bias", _SOURCE),
        EngineFact({"drafting": ("parallel",)}, "refused", "it has no P-EAGLE class", _SOURCE),
        EngineFact({"rope_scaling": (True,)}, "silently wrong", "rope scaling is ignored", _SOURCE),
        *not_read(_SOURCE, "mlp_bias", "partial_rotary", "quantized", "window", "aux_rule=last"),
    ),
)
