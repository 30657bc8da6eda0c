"""Rules about what config.json says: architecture, flags of the norms, sizes, open readings."""

from collections.abc import Iterator

from eagleconv.drafter.evidence import architecture, present
from eagleconv.drafter.layouts import LAYOUTS
from eagleconv.rules.rule import Hit, Rule
from eagleconv.rules.subject import Subject

#: Flags every engine reads at the top level only (norm_before_fc: TensorRT-LLM nested only).
_TOP_FLAGS = ("fc_norm", "norm_output", "norm_before_residual")
_WRONG_HOMES = ("eagle_config", "transformer_layer_config")


#: Class names that trainers write.
_CLASSES = {
    name
    for layout in LAYOUTS
    for name in (*layout.architectures.values(), *layout.signature.architectures)
}


def _not_a_drafter(s: Subject) -> Iterator[Hit]:
    name = architecture(s.checkpoint.config)
    if (
        s.fallback
        and name not in _CLASSES
        and "transformer_layer_config" not in s.checkpoint.config
    ):
        yield Hit(
            f"architectures is {s.checkpoint.config.get('architectures')}, which no trainer of "
            "EAGLE-3 drafters writes, but the tensors are a drafter's; read as the flat layout",
            "name the drafter's class; upgrade does once the layout is known",
            key="architectures",
        )


def _both_norms(s: Subject) -> Iterator[Hit]:
    if s.value("input_norm") == "both":
        yield Hit(
            "fc_norm and norm_before_fc are both on; vLLM and SGLang apply both, TensorRT-LLM the "
            "first only, and no known trainer trains both",
            "keep the one it was trained with",
            key="fc_norm",
        )


def misplaced(s: Subject) -> Iterator[Hit]:
    """Yield flags of the norms in homes that no engine reads."""
    config = s.checkpoint.config
    for home in _WRONG_HOMES:
        for flag in _TOP_FLAGS:
            path = f"{home}.{flag}"
            if present(config, path) and not present(config, flag):
                yield Hit(
                    f"{path} is read by no engine; {flag} belongs at the top level",
                    "move the key",
                    key=path,
                )


def _declared_layers(s: Subject) -> Iterator[Hit]:
    layers = s.value("num_layers")
    for path in ("num_hidden_layers", "transformer_layer_config.num_hidden_layers"):
        said = s.lookup(path)
        if said is not None and layers is not None and said != layers:
            yield Hit(
                f"{path} is {said}, the file has {layers} layer{'s' if layers > 1 else ''}: the "
                "target's number perhaps",
                "run upgrade, which writes what the tensors are",
                key=path,
            )


def _unknown_keys(s: Subject) -> Iterator[Hit]:
    keys = s.unknown_keys()
    if keys:
        more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
        yield Hit(
            f"{'key' if len(keys) == 1 else 'keys'} {', '.join(keys[:3])}{more}: known to no layout "
            "and no engine of this version of eagleconv",
            "nothing, if it is a note of the trainer's",
            key=keys[0],
        )


def _architecture_by_block(s: Subject) -> Iterator[Hit]:
    block, name = s.value("block"), architecture(s.checkpoint.config)
    said = "qwen3" if "Qwen3For" in name else "mla" if "Deepseek" in name else "llama"
    if block is None or s.fallback or not name.startswith(("Eagle3", "LlamaForCausalLMEagle3")):
        return
    if name != "Eagle3Speculator" and "DraftModel" not in name and said != block:
        yield Hit(
            f"architectures names {name}, a {said} block, but the tensors are a {block} block's",
            "run upgrade, which writes the class the tensors need",
            key="architectures",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        "ECC001",
        "architecture-is-no-drafter",
        "error",
        "`architectures` names a drafter's class.",
        "Engines choose the loader by it: the target's loader then fails on the drafter's tensors "
        "([sglang#9135](https://github.com/sgl-project/sglang/issues/9135), "
        "[AngelSlim#39](https://github.com/Tencent/AngelSlim/issues/39)).",
        '`"architectures": ["Qwen3ForCausalLM"]` beside tensors `midlayer.*`',
        'Write `["LlamaForCausalLMEagle3"]`, or the class of the block.',
        # An engine that was asked for says itself what it makes of the name (ECE001).
        engine_severity={"vllm": "warning", "sglang": "warning"},
        check=_not_a_drafter,
    ),
    Rule(
        "ECC002",
        "both-input-norms",
        "error",
        "At most one of `fc_norm` (one norm per state) and `norm_before_fc` (one over all) is on.",
        "They are different and exclusive in every trainer; engines differ in which they apply "
        "([speculators#670](https://github.com/vllm-project/speculators/pull/670)).",
        '`"fc_norm": true, "norm_before_fc": true`',
        "Keep the one it was trained with, and its tensors.",
        check=_both_norms,
        unread=("input norm",),
    ),
    Rule(
        "ECC003",
        "norm-tensors-without-flag",
        "error",
        "Where there are `fc_norm.*` or `input_norm` tensors, the key says so.",
        "vLLM refuses fc_norm tensors without the key and drops input_norm silently; SGLang drops "
        "both: a 3.1 drafter is served as 3.0 "
        "([vllm#46488](https://github.com/vllm-project/vllm/pull/46488), "
        "[vllm#38111](https://github.com/vllm-project/vllm/pull/38111)).",
        "`fc_norm.0.weight` .. `fc_norm.2.weight`, no key `fc_norm`",
        "Write the key at the top level.",
        "upgrade",
        unread=("input norm",),
    ),
    Rule(
        "ECC004",
        "norm-flag-without-tensors",
        "error",
        "Where the config turns a norm on, its tensors are there.",
        "vLLM and SGLang leave a missing norm at 1.0 without a word: a drafter called 3.1 that "
        "computes something nobody trained.",
        '`"fc_norm": true`, no tensor `fc_norm.*`',
        "Get the tensors, or correct the key if the weights were trained without.",
        unread=("input norm",),
    ),
    Rule(
        "ECC005",
        "size-contradicts-tensors",
        "error",
        "Widths and head counts of the config are those of the tensors.",
        "Loaders assert shapes, or split the heads wrongly without an error; head_dim is not "
        "always hidden_size / heads "
        "([speculators#134](https://github.com/vllm-project/speculators/pull/134), "
        "[Model-Optimizer#398](https://github.com/NVIDIA/Model-Optimizer/pull/398)).",
        '`"num_attention_heads": 32`, `q_proj.weight [4096, 8192]`, `"head_dim": 80`',
        "Correct the key.",
        unread=("heads", "hidden size", "MLP"),
    ),
    Rule(
        "ECC006",
        "value-of-wrong-kind",
        "error",
        "Every key that decides what is computed has a value of its kind.",
        'Engines test truth, so `"norm_output": "false"` is true to them.',
        '`"norm_output": "false"`',
        "Write the value as JSON of the right kind.",
    ),
    Rule(
        "ECC007",
        "key-missing",
        "error",
        "Keys without a known default are there.",
        "What an absent key means depends on the engine and on `model_type`.",
        "no `num_attention_heads`",
        "Add the key with the value the weights were trained with.",
        unread=("eps of the norms", "positions", "activation", "heads", "draft vocabulary"),
    ),
    Rule(
        "ECC009",
        "flag-in-wrong-home",
        "error",
        "`fc_norm`, `norm_output` and `norm_before_residual` are at the top level.",
        "vLLM, SGLang and TensorRT-LLM read them there only: nested in eagle_config they are "
        "ignored, in transformer_layer_config overwritten "
        "([vllm#46488](https://github.com/vllm-project/vllm/pull/46488)).",
        '`"eagle_config": {"norm_output": true}`',
        "Move the key to the top level.",
        check=misplaced,
    ),
    Rule(
        "ECC010",
        "speculators-converted",
        "warning",
        "The file was not written by `speculators convert`.",
        "That converter takes layer ids, norm_before_residual and the rope base from its arguments "
        "or from old keys only, and only warns about unmatched tensors "
        "([speculators#1114](https://github.com/vllm-project/speculators/issues/1114), "
        "[speculators#574](https://github.com/vllm-project/speculators/pull/574)).",
        '`"architectures": ["Eagle3Speculator"]`',
        "Compare it with the checkpoint it was converted from: `eagleconv diff`.",
        unread=("known trouble",),
    ),
    Rule(
        "ECC011",
        "tied-with-own-head",
        "warning",
        "`tie_word_embeddings` is false beside an lm_head.",
        "SGLang and TensorRT-LLM use the embedding as head then "
        "([SpecForge#139](https://github.com/sgl-project/SpecForge/issues/139), "
        "[Automodel#2319](https://github.com/NVIDIA-NeMo/Automodel/pull/2319)).",
        '`"tie_word_embeddings": true`, `lm_head.weight [32000, 4096]`',
        "Write false.",
        "upgrade",
        engine_severity={"sglang": "error", "trtllm": "warning"},
        unread=("known trouble",),
    ),
    Rule(
        "ECC014",
        "one-state-head-with-fc",
        "error",
        "A head fed by the last hidden state only has neither fc nor layer ids.",
        "Engines skip fc when the flag is false, so its weights do nothing.",
        '`"eagle_config": {"use_aux_hidden_state": false}`, `fc.weight [4096, 12288]`',
        "Correct the key.",
        unread=("taps",),
    ),
    Rule(
        "ECC015",
        "states-contradict-fc",
        "error",
        "fc takes as many states of the target's width as the config says.",
        "vLLM sizes fc as target_hidden_size x num_aux_hidden_states (else the nested list's "
        "length, else 3) and asserts it.",
        '`"num_aux_hidden_states": 4`, `fc.weight [4096, 12288]`, width 4096',
        "Correct target_hidden_size, num_aux_hidden_states or the layer ids.",
        unread=("taps",),
    ),
    Rule(
        "ECC016",
        "head-is-own-embedding",
        "error",
        "A head that is the drafter's own embedding is stored as lm_head.",
        "Without a stored lm_head engines use the target's head, not the drafter's embedding.",
        '`"tie_word_embeddings": true`, own `embed_tokens`, no `lm_head.weight`',
        "Store the head as lm_head.weight, or correct the key.",
        unread=("every tensor",),
    ),
    Rule(
        "ECC017",
        "unknown-key",
        "info",
        "Every key of config.json is known.",
        "A newer trainer's key may decide what is computed; older readers ignore it.",
        '`"my_trainer_version": 3`',
        "Nothing, if it is a note of the trainer's.",
        check=_unknown_keys,
    ),
    Rule(
        "ECC018",
        "feedback-open",
        "warning",
        "What is fed to the next draft step is known: the un-normed state or the normed one.",
        "`norm_output` meant a norm before lm_head to SpecForge up to 0.2.0 and means the feedback "
        "to every engine ([SpecForge#879](https://github.com/sgl-project/SpecForge/pull/879)); the "
        "tensors do not show it.",
        '`"norm_output": true` in a SpecForge file without a version',
        "Say what it was trained with; `doctor` measures which one the weights want.",
        "--norm-output-meaning",
        unread=("feedback",),
    ),
    Rule(
        "ECC019",
        "residual-open",
        "warning",
        "Whether the residual starts from the normed state is known.",
        "An absent norm_before_residual is true to vLLM's reader of speculators files, false to "
        "its flat reader and to the speculators converter "
        "([speculators#52](https://github.com/vllm-project/speculators/pull/52)).",
        "a speculators file without `norm_before_residual`",
        "Say what it was trained with.",
        "--norm-before-residual",
        unread=("residual",),
    ),
    Rule(
        "ECC020",
        "layers-contradict-tensors",
        "warning",
        "num_hidden_layers is the number of layers in the file.",
        "vLLM builds the declared number and leaves the rest uninitialised, silently; the number "
        "is the target's where a config was copied.",
        '`"num_hidden_layers": 40`, tensors of one layer',
        "Correct the key.",
        "upgrade",
        check=_declared_layers,
        unread=("layers",),
    ),
    Rule(
        "ECC021",
        "architecture-contradicts-block",
        "error",
        "The class named is that of the block the tensors belong to.",
        "vLLM's llama class refuses q/k norms, its qwen3 class leaves missing ones at 1.0.",
        '`"architectures": ["Eagle3LlamaForCausalLM"]` beside `self_attn.q_norm.weight`',
        "Name the class of the block.",
        "upgrade",
        check=_architecture_by_block,
        unread=("block",),
    ),
)
