"""SpecForge (sgl-project): llama drafters and P-EAGLE."""

from eagleconv.drafter.layouts.layout import (
    DEAD_BUFFERS,
    ENGINE_ID_KEYS,
    FLAG_KEYS,
    FLAT_KEYS,
    FLAT_TOP,
    MASK_KEYS,
    Absence,
    AuxRule,
    Expressible,
    Layout,
    RopeRule,
    Signature,
)
from eagleconv.drafter.names import Rename, same

IDS = ("eagle_config.eagle_aux_hidden_state_layer_ids", "aux_outputs")
AUX = AuxRule(
    "default",
    3,
    False,
    "default taps are outputs of layers 1, n//2-1, n-4 = boundaries 2, n//2, n-3 "
    "(specforge/algorithms/model_providers.py:190-213); ids are outputs of layers",
)
_FLAGS_READ = tuple(row for row in FLAG_KEYS if row[0] not in ("norm_output", "fc_norm"))

SPECFORGE = Layout(
    name="specforge",
    producer="SpecForge",
    title="EAGLE-3 drafter of SpecForge",
    source="specforge 0.2.0: specforge/modeling/draft/llama3_eagle.py:1654-1798",
    signature=Signature(
        tensors=("midlayer.hidden_norm.weight", "d2t", "t2d"),
        no_tensors=("input_norm.*", "mask_hidden", "*.q_norm.*", "*_a_proj*", "fc_norm.3.*"),
        architectures=("LlamaForCausalLMEagle3",),
        no_keys=("speculators_model_type", "eagle_config.next_layer_regular"),
        values={"norm_before_residual": (None, False)},
    ),
    names=(*FLAT_TOP, Rename("midlayer.{m}", "layers.0.{m}"), *DEAD_BUFFERS),
    # `norm_output` means "norm before lm_head" here, with the un-normed state fed back either way
    # (llama3_eagle.py:1690, 1772-1777; algorithms/eagle3/model.py:386-400); fixed by SpecForge#879.
    keys=(*FLAT_KEYS, ("fc_norm", "fc_norm"), ("norm_output", "norm_output_head"), IDS),
    read_also=(*_FLAGS_READ, ENGINE_ID_KEYS[0]),
    aux=AUX,
    architectures={"llama": "LlamaForCausalLMEagle3"},
    model_types={"llama": "llama"},
    rope=RopeRule(
        base={
            "*": "rarely 10000",
            "yarn": "varies",
            "linear": "varies",
            "dynamic": "varies",
            "mrope": "varies",
        },
        partial="ignored",
        why="its trainer rotated with base 10000 whatever is written before 2025-10-30 and from "
        "2026-06-27 to 2026-07-17, and until then with yarn, linear, dynamic and mrope too "
        "(specforge/modeling/draft/llama3_eagle.py, commits d3472dde, 1712b656)",
    ),
    derived=("t2d",),
    required=("d2t", "t2d"),
    absent={"feedback": Absence(("pre_norm",), "SpecForge feeds the un-normed state back")},
    expressible=Expressible(
        facts={
            "block": ("llama",),
            "drafting": ("chain",),
            "input_norm": ("none", "per_aux"),
            "feedback": ("pre_norm",),
            "residual": ("raw",),
        },
        max_layers=1,
        aux_count=3,
        biases=False,
        quantized=False,
        window=False,
        borrowed_head=False,
        reason="llama3_eagle.py:1674-1690",
    ),
)

PEAGLE = Layout(
    name="specforge-peagle",
    producer="SpecForge",
    title="P-EAGLE drafter of SpecForge",
    source="specforge 0.2.0: specforge/modeling/draft/peagle.py:176",
    signature=Signature(
        tensors=("mask_hidden", "layers.0.hidden_norm.weight"),
        no_tensors=("fc_norm.*", "input_norm.*", "*.q_norm.*", "*_a_proj*"),
        architectures=("PEagleDraftModel",),
        no_keys=("speculators_model_type",),
    ),
    names=(*FLAT_TOP, *same("layers.{i}.{m}"), *DEAD_BUFFERS),
    keys=(
        *FLAT_KEYS,
        ("norm_before_residual", "norm_before_residual"),
        IDS,
        MASK_KEYS[0],
    ),
    read_also=(*FLAG_KEYS, ENGINE_ID_KEYS[0], *MASK_KEYS[1:]),
    aux=AUX,
    architectures={"llama": "PEagleDraftModel"},
    model_types={"llama": "llama"},
    rope=RopeRule(
        scaling_doubt=("*",),
        partial="ignored",
        why="P-EAGLE rotates with rope_theta only (specforge/modeling/draft/peagle.py:223)",
    ),
    derived=("t2d",),
    required=("d2t", "t2d"),
    expressible=Expressible(
        facts={
            "block": ("llama",),
            "drafting": ("parallel",),
            "input_norm": ("none",),
            "feedback": ("pre_norm",),
        },
        aux_count=3,
        biases=False,
        quantized=False,
        window=False,
        scaling=False,
        borrowed_head=False,
        reason="specforge/modeling/draft/peagle.py",
    ),
)
