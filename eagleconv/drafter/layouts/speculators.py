"""speculators (vllm-project) 0.9.0: eagle3 and peagle, trained and converted forms."""

from dataclasses import replace

from eagleconv.drafter.layouts.layout import (
    FLAT_TOP,
    MASK_KEYS,
    Absence,
    AuxRule,
    Expressible,
    Layout,
    Note,
    Signature,
    layer_keys,
)
from eagleconv.drafter.names import same

SOURCE = "speculators 0.9.0: speculators/models/eagle3/{config,core}.py"
_NESTED = "transformer_layer_config."
_KEYS = (
    *layer_keys(_NESTED),
    ("transformer_layer_config.model_type", "layer_model_type"),
    ("draft_vocab_size", "draft_vocab_size"),
    ("target_hidden_size", "target_hidden_size"),
    ("norm_before_residual", "norm_before_residual"),
    ("norm_before_fc", "norm_before_fc"),
    ("fc_norm", "fc_norm"),
    ("norm_output", "norm_output"),
    ("eagle_aux_hidden_state_layer_ids", "aux_boundaries"),
    ("dtype", "dtype"),
    ("tie_word_embeddings", "tie_word_embeddings"),
    ("quantization_config", "quantization_config"),
)
_OWN = (
    "speculators_model_type",
    "speculators_version",
    "speculators_config",
    "transformer_layer_config",
    "auto_map",
    "embed_requires_grad",
)
_PROPOSAL = {
    "proposal_type": "greedy",
    "speculative_tokens": 3,
    "verifier_accept_k": 1,
    "accept_tolerance": 0.0,
}
_AUX = AuxRule(
    "default",
    None,
    True,
    "top-level ids are boundaries, default 2, n//2, n-3, always written by the trainer "
    "(speculators/models/utils.py:99-140)",
)
EAGLE3 = Layout(
    name="speculators-eagle3",
    producer="speculators",
    title="EAGLE-3 drafter trained with speculators",
    source=SOURCE,
    signature=Signature(
        tensors=("layers.0.hidden_norm.weight",),
        no_tensors=("mask_hidden", "*_a_proj*"),
        architectures=("Eagle3DraftModel", "Eagle3Speculator", ""),
        values={"speculators_model_type": ("eagle3",)},
    ),
    names=(*FLAT_TOP, *same("layers.{i}.{m}")),
    keys=_KEYS,
    # Old files carry torch_dtype; the peer's own converter reads nothing else.
    read_also=(("torch_dtype", "dtype"), ("num_aux_hidden_states", "num_aux_hidden_states")),
    fixed={
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [_PROPOSAL],
            "verifier": {"name_or_path": None, "architectures": []},
        },
    },
    aux=_AUX,
    architectures={"llama": "Eagle3DraftModel", "qwen3": "Eagle3DraftModel"},
    model_types={},
    derived=("t2d",),
    own_keys=_OWN,
    full_attention=False,
    absent={
        "residual": Absence(
            ("normed", "raw"),
            "vLLM reads an absent norm_before_residual as true "
            "(transformers_utils/configs/speculators/algos.py:33-35), "
            "speculators' own config class as false",
        )
    },
    expressible=Expressible(
        facts={
            "block": ("llama", "qwen3"),
            "drafting": ("chain",),
            "input_norm": ("none", "concat", "per_aux"),
        },
        own_embedding=True,
        equal_widths=True,
        borrowed_head=False,
        reason="speculators/models/eagle3/core.py:186-190",
    ),
)
_CONVERTED_NOTE = Note(
    "ECC010",
    "this file was written by `speculators convert`, which takes layer ids, norm_before_residual "
    "and the rope base from its arguments or from old keys only, never from the source's "
    "eagle_config or rope_parameters",
    "compare these facts with the checkpoint it was converted from",
)
CONVERTED = replace(
    EAGLE3,
    name="speculators-converted",
    title="EAGLE-3 drafter converted with `speculators convert`",
    signature=replace(EAGLE3.signature, architectures=("Eagle3Speculator",)),
    architectures={"llama": "Eagle3Speculator"},
    aux=AuxRule(
        "open",
        None,
        False,
        "`speculators convert` drops the ids of its source (eagle3_converter.py)",
    ),
    notes=(_CONVERTED_NOTE,),
    expressible=replace(
        EAGLE3.expressible,
        facts={"block": ("llama",), "drafting": ("chain",), "input_norm": ("none",)},
        max_layers=1,
        aux_count=3,
    ),
)
PEAGLE = replace(
    EAGLE3,
    name="speculators-peagle",
    title="P-EAGLE drafter of speculators",
    signature=Signature(
        tensors=("layers.0.hidden_norm.weight", "mask_hidden"),
        no_tensors=("*_a_proj*",),
        architectures=("PEagleDraftModel", "PEagleSpeculator", ""),
        values={"speculators_model_type": ("peagle",)},
    ),
    keys=(*_KEYS, MASK_KEYS[0]),
    architectures={"llama": "PEagleDraftModel", "qwen3": "PEagleDraftModel"},
    fixed={
        **EAGLE3.fixed,
        "speculators_model_type": "peagle",
        "speculators_config": {**EAGLE3.fixed["speculators_config"], "algorithm": "peagle"},
    },
    # Both readers agree for P-EAGLE (algos.py:71-73).
    absent={"residual": Absence(("raw",), "vLLM and speculators both read it as false")},
    expressible=replace(
        EAGLE3.expressible,
        facts={
            "block": ("llama", "qwen3"),
            "drafting": ("parallel",),
            "input_norm": ("none", "concat", "per_aux"),
        },
    ),
)
#: ModelOpt's example script writes this format from its own heads and says normed, though the head
#: was trained with the raw residual. Its files lack the embedding and t2d that speculators saves.
MODELOPT = replace(
    EAGLE3,
    name="modelopt-speculators",
    producer="ModelOpt",
    title="EAGLE-3 head of ModelOpt converted by its vLLM example script",
    source="Model-Optimizer a2fbac7b: speculative_decoding/scripts/convert_to_vllm_ckpt.py:31",
    signature=replace(
        EAGLE3.signature, no_tensors=("mask_hidden", "*_a_proj*", "embed_tokens.*", "t2d")
    ),
    absent={
        "residual": Absence(("normed", "raw"), "the script writes true, the head was trained raw"),
        "residual true": Absence(
            ("normed", "raw"),
            "speculators trains what it writes; ModelOpt's conversion script writes true for "
            "heads trained raw, and files without embedding and t2d look like its output",
        ),
    },
    derived=(),
    omitted=("t2d",),
    aux=AuxRule("open", None, False, "the script drops eagle_config, and the ids with it"),
    expressible=replace(EAGLE3.expressible, own_embedding=False, ids="default"),
)
