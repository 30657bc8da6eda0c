"""TorchSpec (lightseekorg): native and `--vllm` exports, llama and MLA blocks."""

from dataclasses import replace

from eagleconv.drafter.layouts.layout import (
    ENGINE_ID_KEYS,
    FLAG_KEYS,
    FLAT_KEYS,
    FLAT_TOP,
    AuxRule,
    Expressible,
    Layout,
    Note,
    RopeRule,
    Signature,
)
from eagleconv.drafter.names import Rename, same

SOURCE = "TorchSpec 6f21829c: torchspec/models/draft/, tools/convert_to_hf.py"
OUTPUT_IDS = ("eagle_config.eagle_aux_hidden_state_layer_ids", "aux_outputs")
BOUNDARY_IDS = ("eagle_config.eagle_aux_hidden_state_layer_ids", "aux_boundaries")
_FLAGS = (
    ("fc_norm", "fc_norm"),
    ("norm_output", "norm_output"),
    ("num_aux_hidden_states", "num_aux_hidden_states"),
)
_FLAGS_READ = tuple(row for row in FLAG_KEYS if row not in _FLAGS)
PRUNED = Note(
    "ECT009",
    "TorchSpec's pruning after training takes lm_head rows d2t[i] instead of i + d2t[i] "
    "(tools/convert_to_hf.py:309), so a head pruned that way scores the wrong tokens; "
    "the file does not show whether it was pruned",
    "compare lm_head with the head before pruning, or measure acceptance before you publish",
    {"vocabulary": "reduced"},
)
LLAMA_BASE = RopeRule(
    base={
        "*": "config",
        "yarn": "varies",
        "linear": "10000",
        "dynamic": "10000",
        "mrope": "10000",
    },
    why="its llama attention passes no base with linear, dynamic and mrope scaling, nor with yarn "
    "before 2026-04-02 (torchspec/models/draft/llama3_eagle.py:1156-1222)",
)
YARN_BASE = RopeRule(
    base={"*": "config", "yarn": "10000", "linear": "10000", "dynamic": "10000"},
    why="the yarn branch of its MLA attention passes no base, so 10000 is used whatever rope_theta "
    "says (torchspec/models/draft/deepseek_eagle.py:203-212)",
)
_EXPRESSIBLE = Expressible(
    facts={
        "block": ("llama",),
        "drafting": ("chain",),
        "input_norm": ("none", "per_aux"),
        "residual": ("raw",),
    },
    max_layers=1,
    own_embedding=True,
    biases=False,
    quantized=False,
    window=False,
    borrowed_head=False,
    reason="torchspec/models/draft/llama3_eagle.py:2102-2124",
)
_EXPRESSIBLE_MLA = replace(_EXPRESSIBLE, facts={**_EXPRESSIBLE.facts, "block": ("mla",)})
_AUX = AuxRule(
    "default",
    None,
    True,
    "ids are outputs of layers, default 1, n//2-1, n-4 (torchspec/utils/misc.py:76-88)",
)

NATIVE = Layout(
    name="torchspec",
    producer="TorchSpec",
    title="EAGLE-3 drafter of TorchSpec, native names",
    source=SOURCE,
    signature=Signature(
        tensors=("midlayer.hidden_norm.weight", "embed_tokens.weight"),
        no_tensors=("input_norm.*", "mask_hidden", "*.q_norm.*", "*_a_proj*"),
        architectures=("LlamaForCausalLMEagle3",),
        no_keys=("speculators_model_type", "eagle_config.next_layer_regular"),
        values={"norm_before_residual": (None, False)},
    ),
    names=(*FLAT_TOP, Rename("midlayer.{m}", "layers.0.{m}")),
    keys=(*FLAT_KEYS, *_FLAGS, OUTPUT_IDS),
    read_also=(*_FLAGS_READ, ENGINE_ID_KEYS[0]),
    aux=_AUX,
    architectures={"llama": "LlamaForCausalLMEagle3"},
    model_types={"llama": "llama"},
    derived=("t2d",),
    rope=LLAMA_BASE,
    notes=(PRUNED,),
    fixed={"_torchspec_version": "unknown"},
    own_keys=("_torchspec_version",),
    expressible=_EXPRESSIBLE,
    certain_key="_torchspec_version",
)
NATIVE_MLA = replace(
    NATIVE,
    name="torchspec-mla",
    title="EAGLE-3 drafter of TorchSpec with an MLA block, native names",
    signature=Signature(
        tensors=(
            "midlayer.hidden_norm.weight",
            "midlayer.self_attn.kv_a_proj_with_mqa.*",
            "embed_tokens.weight",
        ),
        no_tensors=("input_norm.*", "mask_hidden"),
        architectures=("Eagle3DeepseekV2ForCausalLM", "DeepseekV3ForCausalLMEagle3"),
        no_keys=("speculators_model_type",),
    ),
    architectures={"mla": "Eagle3DeepseekV2ForCausalLM"},
    model_types={"mla": "kimi_k2"},
    rope=YARN_BASE,
    expressible=_EXPRESSIBLE_MLA,
)
VLLM = replace(
    NATIVE,
    name="torchspec-vllm",
    title="EAGLE-3 drafter of TorchSpec, exported with --vllm",
    signature=Signature(
        tensors=("layers.0.hidden_norm.weight", "embed_tokens.weight"),
        no_tensors=("input_norm.*", "mask_hidden", "*.q_norm.*", "*_a_proj*", "layers.1.*"),
        architectures=("LlamaForCausalLMEagle3",),
        no_keys=("speculators_model_type", "eagle_config.next_layer_regular"),
        values={"norm_before_residual": (None, False)},
    ),
    names=(*FLAT_TOP, *same("layers.{i}.{m}")),
)
VLLM_MLA = replace(
    VLLM,
    name="torchspec-vllm-mla",
    title="EAGLE-3 drafter of TorchSpec with an MLA block, exported with --vllm",
    signature=Signature(
        tensors=(
            "layers.0.hidden_norm.weight",
            "layers.0.self_attn.kv_a_proj_with_mqa.*",
            "embed_tokens.weight",
        ),
        no_tensors=("input_norm.*", "mask_hidden", "layers.1.*"),
        architectures=("Eagle3DeepseekV2ForCausalLM",),
        no_keys=("speculators_model_type", "eagle_config.next_layer_regular"),
        values={"model_type": ("deepseek_v3",)},
    ),
    architectures={"mla": "Eagle3DeepseekV2ForCausalLM"},
    model_types={"mla": "deepseek_v3"},
    rope=YARN_BASE,
    expressible=_EXPRESSIBLE_MLA,
)
#: `--vllm` adds one to the ids for kimi_k2, and only there (tools/convert_to_hf.py:146-159).
VLLM_KIMI = replace(
    VLLM_MLA,
    name="torchspec-vllm-kimi",
    title="EAGLE-3 drafter of TorchSpec with an MLA block, exported with --vllm for kimi_k2",
    signature=replace(VLLM_MLA.signature, values={"model_type": ("kimi_k2",)}),
    keys=(*FLAT_KEYS, *_FLAGS, BOUNDARY_IDS),
    model_types={"mla": "kimi_k2"},
    aux=replace(
        _AUX,
        why="`--vllm` adds one to the ids of kimi_k2, so they are boundaries "
        "(tools/convert_to_hf.py:146-159)",
    ),
)
