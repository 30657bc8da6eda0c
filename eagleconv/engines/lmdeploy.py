"""LMDeploy's PyTorch back end, one unpinned reading of its EAGLE-3 class."""

from eagleconv.engines.engine import Engine, EngineFact, EngineNote, not_read

_SOURCE = "lmdeploy/pytorch/models/llama_eagle3.py"

LMDEPLOY = Engine(
    name="lmdeploy",
    version="unpinned",
    verified=False,
    facts=(
        EngineFact(
            {"input_norm": ("per_aux", "concat", "both")},
            "refused",
            "a tensor without a parameter is a KeyError, and it has no norms before fc",
            _SOURCE,
        ),
        EngineFact(
            {"feedback": ("post_norm",)}, "silently wrong", "norm_output is never read", _SOURCE
        ),
        EngineFact(
            {"residual": ("normed",)},
            "silently wrong",
            "norm_before_residual is never read",
            _SOURCE,
        ),
        EngineFact({"several_layers": (True,)}, "refused", "it has exactly one layer", _SOURCE),
        EngineFact(
            {"aux_three": (False,), "aux_rule": ("explicit", "default")},
            "refused",
            "its fc takes three states",
            _SOURCE,
        ),
        EngineFact(
            {"block": ("mla",)}, "refused", "it has no class with latent attention", _SOURCE
        ),
        EngineFact({"block": ("qwen3",)}, "refused", "it has no parameter for q/k norms", _SOURCE),
        EngineFact(
            {"attention_bias": (True,)}, "unknown", "q/k/v biases are ignored or refused", _SOURCE
        ),
        EngineFact(
            {"fc_bias": (True,)}, "refused", "it has no parameter for a bias of fc", _SOURCE
        ),
        EngineFact({"drafting": ("parallel",)}, "refused", "it has no P-EAGLE class", _SOURCE),
        EngineFact({"mlp_bias": (True,)}, "refused", "it has no parameter for MLP biases", _SOURCE),
        *not_read(
            _SOURCE, "rope_scaling", "partial_rotary", "quantized", "window", "aux_rule=last"
        ),
    ),
    notes=(EngineNote("The layer's tensors are midlayer.*; layers.0.* is a KeyError.", _SOURCE),),
)
