"""What a layout is: its producer, signature, names, keys and habits. All data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from eagleconv.drafter.names import Rename, same


@dataclass(frozen=True, slots=True)
class Signature:
    """How files of a layout are recognised. Every condition given must hold.

    Attributes:
        tensors: Glob patterns; some stored tensor must match each.
        no_tensors: Glob patterns no stored tensor may match.
        architectures: The config's architecture must be one of these.
        keys: Dotted config keys that must be present.
        any_keys: At least one of these must be present.
        no_keys: Dotted config keys that must be absent.
        values: Dotted config key -> values of which it must have one (None: absent or null).
    """

    tensors: tuple[str, ...] = ()
    no_tensors: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    any_keys: tuple[str, ...] = ()
    no_keys: tuple[str, ...] = ()
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuxRule:
    """What a producer's files say about the tapped layers.

    Attributes:
        absent: What no ids at all mean: the `default` taps (2, n//2, n-3), or `open`.
        count: A where the trainer hard-wires it, else None.
        custom: Whether ids that are no default set are in the home's numbering for certain.
        why: Source of all three.
        unordered: Whether ids were written from a set, so that only their sorted order means
            anything (ModelOpt up to 0.40).
    """

    absent: Literal["default", "open"]
    count: int | None
    custom: bool
    why: str
    unordered: bool = False


@dataclass(frozen=True, slots=True)
class RopeRule:
    """What the trainer did with the rope keys it wrote.

    Attributes:
        base: Kind of scaling (`default`, `yarn`, ..., `*` for the rest) -> what it rotated with:
            `config` (as written), `10000` (whatever is written), `varies` (by version, and no
            file shows which), `rarely 10000` (in few versions; worth a warning, not a question).
        scaling_doubt: Kinds of scaling (`*` for all) it ignored, or ran as another one.
        partial: `config`, or `ignored` where the whole head rotates whatever is written.
        why: Source.
    """

    base: Mapping[str, Literal["config", "10000", "varies", "rarely 10000"]] = field(
        default_factory=lambda: {"*": "config"}
    )
    scaling_doubt: tuple[str, ...] = ()
    partial: Literal["config", "ignored"] = "config"
    why: str = ""


@dataclass(frozen=True, slots=True)
class Absence:
    """What an absent key means to a layout's readers and writers.

    Attributes:
        readings: The possible values of the fact; more than one makes it a question.
        why: Who reads it which way.
    """

    readings: tuple[Any, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Note:
    """A trap that applies to every file of a layout that meets a condition on its facts.

    Attributes:
        when: Fact name -> value it must have for the note to apply; `{}` is always.
    """

    code: str
    message: str
    hint: str
    when: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expressible:
    """What a layout can say, so that a writer refuses the rest.

    Attributes:
        facts: Fact name -> the values it can hold; a fact not named is unrestricted.
        ids: `explicit` where any tap can be written, `default` where only the default set can.
        reason: Source of the limits.
    """

    facts: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ids: Literal["explicit", "default"] = "explicit"
    max_layers: int | None = None
    aux_count: int | None = None
    own_embedding: bool | None = None
    equal_widths: bool = False
    biases: bool = True
    quantized: bool = True
    window: bool = True
    scaling: bool = True
    borrowed_head: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """One producer's checkpoint layout.

    Attributes:
        name: Short name, `producer-form`.
        producer: Who writes it.
        title: One line for people.
        source: The file (and version) this was read from.
        signature: How it is recognised.
        names: Rename table, theirs <-> canonical.
        keys: Config table, dotted path <-> item (see `items.py`); read in order, written all.
        read_also: Rows that are understood on reading but that the producer does not write.
        fixed: Dotted path -> literal written always (and expected, not required, on reading).
        architectures: Block -> architecture string this layout writes.
        model_types: Block -> `model_type` this layout writes; absent block: no key is written.
        required: Vocabulary tensors the layout demands at full vocabulary too.
        derived: Vocabulary tensors it demands at reduced vocabulary (t2d follows from d2t).
        omitted: Canonical tensors it never stores, since others imply them.
        own_keys: Config keys only this layout knows; left out when another one is written.
        absent: Fact name -> meaning of its absence, where it is not the engines' default.
        full_attention: True where the trainer has no attention window whatever the config says.
        aux, rope: The producer's habits.
        notes: Traps.
        expressible: What it can say.
        certain_key: Dotted key whose presence proves the producer; others are dropped from the set.
    """

    name: str
    producer: str
    title: str
    source: str
    signature: Signature
    names: tuple[Rename, ...]
    keys: tuple[tuple[str, str], ...]
    aux: AuxRule
    architectures: Mapping[str, str]
    model_types: Mapping[str, str]
    read_also: tuple[tuple[str, str], ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()
    own_keys: tuple[str, ...] = ()
    absent: Mapping[str, Absence] = field(default_factory=dict)
    full_attention: bool = True
    rope: RopeRule = field(default_factory=RopeRule)
    notes: tuple[Note, ...] = ()
    expressible: Expressible = field(default_factory=Expressible)
    certain_key: str = ""


#: Names of tensors stored as they are called here.
FLAT_TOP: tuple[Rename, ...] = same("{t}", "fc_norm.{i}", "{b}")

#: Buffers that old trainers save and nobody reads.
DEAD_BUFFERS: tuple[Rename, ...] = (
    Rename("{any}rotary_emb.inv_freq", None, "rotary buffer; recomputed from the rope facts"),
    Rename("target_model.{any}", None, "a tensor of the target saved by mistake (DeepSpeed)"),
)

#: Keys of the decoder layer, at the place `prefix` says. Item names are those of `items.py`.
_LAYER_ITEMS = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "num_hidden_layers",
    "vocab_size",
    "rms_norm_eps",
    "hidden_act",
    "max_position_embeddings",
    "attention_bias",
    "mlp_bias",
    "rope_parameters",
    "rope_theta",
    "rope_scaling",
    "partial_rotary_factor",
    "layer_types",
    "sliding_window",
    "use_sliding_window",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
)


def layer_keys(prefix: str = "") -> tuple[tuple[str, str], ...]:
    """Return the config rows of the decoder layer, under a dotted prefix."""
    return tuple((f"{prefix}{item}", item) for item in _LAYER_ITEMS)


#: Top-level rows shared by the flat layouts.
FLAT_KEYS: tuple[tuple[str, str], ...] = (
    *layer_keys(),
    ("draft_vocab_size", "draft_vocab_size"),
    ("target_hidden_size", "target_hidden_size"),
    ("dtype", "dtype"),
    ("torch_dtype", "dtype"),
    ("tie_word_embeddings", "tie_word_embeddings"),
    ("quantization_config", "quantization_config"),
)

#: Where vLLM, SGLang and TorchSpec look for the norm flags. Nested wins for `norm_before_fc`.
FLAG_KEYS: tuple[tuple[str, str], ...] = (
    ("fc_norm", "fc_norm"),
    ("norm_output", "norm_output"),
    ("eagle_config.norm_before_fc", "norm_before_fc"),
    ("norm_before_fc", "norm_before_fc"),
    ("norm_before_residual", "norm_before_residual"),
    ("num_aux_hidden_states", "num_aux_hidden_states"),
    ("eagle_config.use_aux_hidden_state", "use_aux_hidden_state"),
    ("bias", "fc_bias"),
)
#: Both homes of the layer ids, each in the numbering of the engine that reads it.
ENGINE_ID_KEYS: tuple[tuple[str, str], ...] = (
    ("eagle_aux_hidden_state_layer_ids", "aux_boundaries"),
    ("eagle_config.eagle_aux_hidden_state_layer_ids", "aux_sglang"),
)
#: The names under which engines look for P-EAGLE's mask token. Source: vLLM 0.32.0
#: `v1/spec_decode/llm_base_proposer.py:358-379`.
MASK_KEYS: tuple[tuple[str, str], ...] = (
    ("mask_token_id", "mask_token_id"),
    ("pard_token", "mask_token_id"),
    ("ptd_token_id", "mask_token_id"),
)
