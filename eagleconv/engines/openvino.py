"""OpenVINO GenAI from 2026.0 on with optimum-intel's export, one unpinned reading."""

from eagleconv.engines.engine import Engine, EngineFact, EngineNote, not_read

_SOURCE = "src/cpp/src/speculative_decoding/eagle3_model_transforms.cpp"
_EXPORT = "optimum-intel, pull request 1588"

OPENVINO = Engine(
    name="openvino",
    version="unpinned",
    verified=False,
    facts=(
        EngineFact(
            {"input_norm": ("per_aux", "concat", "both")},
            "refused",
            "the states have to feed fc directly; a norm between them stops it with 'failed to "
            "locate FC'",
            _SOURCE,
        ),
        EngineFact(
            {"feedback": ("post_norm",)},
            "silently wrong",
            "the residual before the norm is fed back, always",
            _SOURCE,
        ),
        EngineFact(
            {"residual": ("normed",)},
            "silently wrong",
            "the exported class does not read norm_before_residual",
            _EXPORT,
        ),
        EngineFact(
            {"vocabulary": ("full",)},
            "refused",
            "a d2t is asserted, at full vocabulary too",
            _SOURCE,
        ),
        EngineFact(
            {"own_embedding": (True,)},
            "silently wrong",
            "the drafter's embedding is replaced by the target's; harmless only if they are equal",
            _SOURCE,
        ),
        EngineFact({"several_layers": (True,)}, "refused", "it has one midlayer", _SOURCE),
        EngineFact(
            {"aux_three": (False,), "aux_rule": ("explicit", "default")},
            "refused",
            "hidden_layers_list has three entries",
            _SOURCE,
        ),
        EngineFact({"block": ("mla",)}, "refused", "no class with latent attention", _EXPORT),
        EngineFact({"drafting": ("parallel",)}, "refused", "it has no P-EAGLE class", _SOURCE),
        *not_read(
            _EXPORT,
            "block=qwen3",
            "attention_bias",
            "mlp_bias",
            "fc_bias",
            "rope_scaling",
            "partial_rotary",
            "quantized",
            "window",
            "aux_rule=last",
        ),
    ),
    notes=(
        EngineNote("Quantise with its own export (int8, int4), not before it.", _EXPORT),
        EngineNote(
            "It taps the output of layer 2, n//2, n-3, which is one later than the other engines' "
            "default: try before you rely on it.",
            _SOURCE,
        ),
    ),
)
