"""AngelSlim (Tencent)."""

from eagleconv.drafter.layouts.layout import (
    DEAD_BUFFERS,
    ENGINE_ID_KEYS,
    FLAG_KEYS,
    FLAT_KEYS,
    FLAT_TOP,
    AuxRule,
    Expressible,
    Layout,
    RopeRule,
    Signature,
)
from eagleconv.drafter.names import Rename

ANGELSLIM = Layout(
    name="angelslim",
    producer="AngelSlim",
    title="EAGLE-3 drafter of AngelSlim",
    source="AngelSlim 67394ce5: train/models/draft/llama_eagle3.py:232-254, 543-601",
    signature=Signature(
        tensors=("midlayer.hidden_norm.weight",),
        no_tensors=("fc_norm.*", "input_norm.*", "mask_hidden", "*.q_norm.*", "*_a_proj*"),
        architectures=("Eagle3LlamaForCausalLM", "CosyVoice3Eagle3LlamaForCausalLM"),
        no_keys=("speculators_model_type",),
    ),
    names=(*FLAT_TOP, Rename("midlayer.{m}", "layers.0.{m}"), *DEAD_BUFFERS),
    keys=tuple(row for row in FLAT_KEYS if row[1] != "num_hidden_layers"),
    # CosyVoice's config says 24 layers and stores one: layers are counted from the tensors.
    read_also=(*FLAG_KEYS, *ENGINE_ID_KEYS),
    fixed={"num_hidden_layers": 1},
    aux=AuxRule("default", 3, False, "taps hidden_states[id + 1] of 1, n//2-1, n-4"),
    architectures={"llama": "Eagle3LlamaForCausalLM"},
    model_types={"llama": "llama"},
    required=("d2t", "t2d"),
    derived=("t2d",),
    rope=RopeRule(
        base={"*": "10000", "mrope": "config"},
        why="without mrope its trainer never passes rope_theta and rotates with base 10000 "
        "(train/models/draft/llama_eagle3.py:257-270); engines use rope_theta where written",
    ),
    expressible=Expressible(
        facts={
            "block": ("llama",),
            "drafting": ("chain",),
            "input_norm": ("none",),
            "feedback": ("pre_norm",),
            "residual": ("raw",),
        },
        ids="default",
        max_layers=1,
        aux_count=3,
        own_embedding=True,
        biases=False,
        quantized=False,
        window=False,
        borrowed_head=False,
        reason="train/models/draft/llama_eagle3.py",
    ),
)
