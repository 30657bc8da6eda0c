"""TensorRT-LLM's PyTorch back end, one unpinned reading of `modeling_speculative.py`."""

from eagleconv.engines.engine import Engine, EngineFact

_SOURCE = "tensorrt_llm/_torch/models/modeling_speculative.py"

TENSORRT_LLM = Engine(
    name="trtllm",
    version="1.x",
    verified=False,
    facts=(
        EngineFact(
            {"residual": ("normed",)},
            "silently wrong",
            "norm_before_residual is never read",
            _SOURCE,
        ),
        EngineFact(
            {"several_layers": (True,)},
            "silently wrong",
            "layers above the first read hidden_norm",
            _SOURCE,
        ),
        EngineFact({"drafting": ("parallel",)}, "refused", "no P-EAGLE class", _SOURCE),
        EngineFact(
            {"own_embedding_same_width": (True,)},
            "silently wrong",
            "the drafter's embedding is replaced by the target's",
            _SOURCE,
        ),
        EngineFact(
            {"aux_rule": ("explicit",)},
            "silently wrong",
            "layer ids come from eagle3_layers_to_capture of its API, not from the config",
            "tensorrt_llm/_torch/speculative/eagle3.py",
        ),
        EngineFact({"window": (True,)}, "silently wrong", "no window in its drafter", _SOURCE),
    ),
)
