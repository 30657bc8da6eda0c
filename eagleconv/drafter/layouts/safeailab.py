"""SafeAILab/EAGLE, the reference implementation: EAGLE-3 heads.

EAGLE-1 and EAGLE-2 heads of the same repository are recognised in `families.py`.
"""

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

SOURCE = "SafeAILab/EAGLE cb7e0841: eagle/model/cnets.py, eagle/traineagle3/cnets.py"
MIDLAYER = (*FLAT_TOP, Rename("midlayer.{m}", "layers.0.{m}"), *DEAD_BUFFERS)
#: A present target_hidden_size makes its loader skip the target's embedding (cnets.py:488), so it
#: is written only beside an embedding of the drafter's own.
KEYS = tuple(
    (path, "target_hidden_size_own" if item == "target_hidden_size" else item)
    for path, item in FLAT_KEYS
)
READ_ALSO = (("target_hidden_size", "target_hidden_size"), *FLAG_KEYS, *ENGINE_ID_KEYS)
ROPE = RopeRule(
    base={"*": "10000"},
    why="its trainer always rotates with base 10000 (eagle/traineagle3/cnets.py:206-209); "
    "its inference code and every engine use rope_theta where it is written",
)

SAFEAILAB = Layout(
    name="safeailab-eagle3",
    producer="SafeAILab",
    title="EAGLE-3 head of the reference trainer",
    source=SOURCE,
    signature=Signature(
        tensors=("midlayer.hidden_norm.weight",),
        no_tensors=("fc_norm.*", "input_norm.*", "mask_hidden", "*.q_norm.*", "*_a_proj*"),
        architectures=("LlamaForCausalLM", ""),
        no_keys=("speculators_model_type", "truncated_vocab_size", "_torchspec_version"),
    ),
    names=MIDLAYER,
    keys=KEYS,
    read_also=READ_ALSO,
    aux=AuxRule("default", 3, False, "taps boundaries 2, n//2, n-3 in its target model files"),
    architectures={"llama": "LlamaForCausalLM"},
    model_types={"llama": "llama"},
    rope=ROPE,
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
        biases=False,
        quantized=False,
        window=False,
        borrowed_head=False,
        reason="eagle/model/cnets.py:479-541",
    ),
)

#: Heads published with `truncated_vocab_size` beside `draft_vocab_size`, e.g. for gpt-oss.
TRUNCATED = Layout(
    name="truncated-vocab",
    producer="nebius",
    title="EAGLE-3 head with truncated_vocab_size in its config",
    source="nebius/EAGLE3-gpt-oss-20b, as described in public threads",
    signature=Signature(
        tensors=("midlayer.hidden_norm.weight",),
        no_tensors=("fc_norm.*", "input_norm.*", "mask_hidden", "*.q_norm.*", "*_a_proj*"),
        architectures=("LlamaForCausalLM",),
        keys=("truncated_vocab_size",),
    ),
    names=MIDLAYER,
    keys=(*FLAT_KEYS, ("truncated_vocab_size", "draft_vocab_size")),
    read_also=(*FLAG_KEYS, *ENGINE_ID_KEYS),
    aux=AuxRule("default", 3, False, "no id key; published without one and served by default taps"),
    architectures={"llama": "LlamaForCausalLM"},
    model_types={"llama": "llama"},
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
        biases=False,
        quantized=False,
        window=False,
        borrowed_head=False,
    ),
    own_keys=("truncated_vocab_size",),
)
