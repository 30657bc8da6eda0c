"""TensorRT-Edge-LLM's exporter and runtime (0.8 to 0.9), one unpinned reading."""

from eagleconv.engines.engine import Engine, EngineFact, EngineNote, not_read

_SOURCE = "experimental/builder/models/eagle3/modeling_eagle3_draft.py"

EDGE_LLM = Engine(
    name="edge-llm",
    version="unpinned",
    verified=False,
    facts=(
        EngineFact(
            {"input_norm": ("per_aux", "concat", "both")},
            "unknown",
            "its exporter has no norm before fc; one would have to be baked into the graph",
            _SOURCE,
        ),
        EngineFact(
            {"feedback": ("post_norm",)},
            "silently wrong",
            "what is fed back is the state before the norm, unless another is baked into the graph",
            _SOURCE,
        ),
        EngineFact(
            {"residual": ("normed",)},
            "silently wrong",
            "norm_before_residual is never read",
            _SOURCE,
        ),
        EngineFact(
            {"several_layers": (True,)},
            "refused",
            "it concatenates the embedding in every layer, so those above the first do not fit",
            _SOURCE,
        ),
        EngineFact(
            {"aux_three": (False,), "aux_rule": ("explicit", "default")},
            "unknown",
            "its exporter takes three states; its experimental builder takes any number",
            _SOURCE,
        ),
        EngineFact({"block": ("mla",)}, "refused", "it has no latent attention", _SOURCE),
        EngineFact(
            {"fc_bias": (True,)},
            "silently wrong",
            "fc of the states and the fed-back state are added, so a bias is added at every step",
            _SOURCE,
        ),
        EngineFact(
            {"own_embedding": (True,)},
            "silently wrong",
            "the runtime feeds the target's embedding; harmless only if they are equal",
            _SOURCE,
        ),
        EngineFact({"drafting": ("parallel",)}, "refused", "it has no P-EAGLE class", _SOURCE),
        *not_read(_SOURCE, "mlp_bias", "rope_scaling", "partial_rotary", "window", "aux_rule=last"),
    ),
    notes=(
        EngineNote(
            "d2t travels beside the graph, and whether it holds offsets or ids is guessed.", _SOURCE
        ),
        EngineNote("The ONNX bindings changed between releases: pin one.", _SOURCE),
    ),
)
