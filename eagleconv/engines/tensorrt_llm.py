"""TensorRT-LLM's PyTorch back end, one unpinned reading of `modeling_speculative.py`."""

from eagleconv.engines.engine import Engine, EngineFact, EngineNote, not_read

_SOURCE = "tensorrt_llm/_torch/models/modeling_speculative.py"
_TAPS = "tensorrt_llm/_torch/speculative/eagle3.py"

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
            {"input_norm": ("both",)},
            "silently wrong",
            "where fc_norm is set, norm_before_fc is not looked at",
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
            {"custom_taps": (True,)},
            "silently wrong",
            "layer ids come from eagle3_layers_to_capture of its API, not from the config",
            _TAPS,
        ),
        EngineFact({"window": (True,)}, "silently wrong", "no window in its drafter", _SOURCE),
        *not_read(_SOURCE, "block=qwen3", "partial_rotary", "aux_rule=last"),
    ),
    notes=(
        EngineNote("norm_before_fc is read in eagle_config only.", _SOURCE),
        EngineNote("A target of five layers or fewer is refused.", _TAPS),
        EngineNote("fc_norm and norm_output need pull request 14988 (June 2026).", _SOURCE),
    ),
)
