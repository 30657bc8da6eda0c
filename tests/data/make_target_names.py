"""Make tests/data/target_names/<version>.json: what transformers calls the parts of its models.

    python make_target_names.py OUT    # with transformers and torch; models are made on no device

For each family, names of stored tensors by role, told by the model itself: the weights of
get_input_embeddings() and get_output_embeddings(), the layers of the decoder, what else belongs to
the decoder, and what does not (towers, projectors). Of layers, the first one is kept.
"""

import contextlib
import json
import sys
import warnings
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

TEXT = [
    "llama",
    "qwen2",
    "qwen3",
    "qwen2_moe",
    "qwen3_moe",
    "qwen3_next",
    "mistral",
    "mixtral",
    "gemma",
    "gemma2",
    "gemma3_text",
    "gpt_oss",
    "deepseek_v2",
    "deepseek_v3",
    "glm",
    "glm4",
    "glm4_moe",
    "minimax",
    "minimax_m2",
    "phi",
    "phi3",
    "gpt_neox",
    "falcon",
    "nemotron",
    "nemotron_h",
    "gpt2",
    "olmo2",
    "granite",
    "cohere2",
    "ernie4_5",
    "smollm3",
    "hunyuan_v1_dense",
    "seed_oss",
    "exaone4",
    "lfm2",
    "zamba2",
    "stablelm",
    "starcoder2",
    "apertus",
    "llama4_text",
    "longcat_flash",
    "mpt",
    "mamba",
    "mamba2",
    "falcon_mamba",
    "qwen3_5_text",
    "qwen3_5_moe_text",
]
VISION = [
    "llava",
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_vl_moe",
    "gemma3",
    "mistral3",
    "internvl",
    "glm4v",
    "llama4",
    "idefics3",
    "qwen3_5",
    "qwen3_5_moe",
    "mllama",
]
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "n_layer": 2,
    "num_layers": 2,
    "n_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "head_dim": 16,
    "pad_token_id": 0,
}


def small(config, sizes):
    for key, value in sizes.items():
        if hasattr(config, key):
            with contextlib.suppress(AttributeError, TypeError, ValueError):
                setattr(config, key, value)
    if getattr(config, "layer_types", None):
        with contextlib.suppress(AttributeError, TypeError):
            config.layer_types = list(config.layer_types)[:2]


def model(family):
    config = AutoConfig.for_model(family)
    small(config.get_text_config(), SIZES)
    if family in VISION:
        vision = {"num_hidden_layers": 1, "depth": 1, "num_global_layers": 1}
        small(config.vision_config, vision)
    kind = AutoModelForImageTextToText if family in VISION else AutoModelForCausalLM
    with torch.device("meta"):
        return kind.from_config(config)


def roles(one):
    named = dict(one.named_parameters(remove_duplicate=False))
    embedding, head = one.get_input_embeddings(), one.get_output_embeddings()
    decoder = one.get_decoder()
    lists = [m for m in decoder.modules() if isinstance(m, torch.nn.ModuleList) and len(m)]
    layers = next(m for m in lists if len(m) >= 2 or len(lists) == 1)
    inside = {id(p) for p in layers.parameters()}
    first = {id(p) for p in layers[0].parameters()}
    within = {id(p) for p in decoder.parameters()}
    out = {"embedding": [], "head": [], "layer": [], "decoder": [], "other": []}
    for name, p in named.items():
        tied = head is not None and p is head.weight
        if p is embedding.weight and not (tied and "embed" not in name and "wte" not in name):
            out["embedding"].append(name)
        elif tied:
            out["head"].append(name)
        elif id(p) in inside:
            if id(p) in first:
                out["layer"].append(name)
        else:
            out["decoder" if id(p) in within else "other"].append(name)
    return out


def main():
    warnings.filterwarnings("ignore")
    found = {}
    for family in (*TEXT, *VISION):
        try:
            found[family] = roles(model(family))
        except Exception as error:  # each family fails in its own way
            print(f"left out: {family}: {type(error).__name__}: {str(error)[:80]}")
    path = Path(sys.argv[1]) / f"{transformers.__version__}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=0) + "\n")
    print(path, len(found))


if __name__ == "__main__":
    main()
