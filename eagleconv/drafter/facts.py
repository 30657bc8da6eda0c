"""The canonical drafter: what it computes, as independent facts, each with its origin.

"EAGLE 3.1" is no version field. It is a set of facts (design section 1); a drafter is described by
all of them, whatever the trainer that wrote the file called them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

Origin = Literal["read", "target", "default", "user", "inferred", "open"]


@dataclass(frozen=True, slots=True)
class Fact:
    """One value of a drafter and where it came from.

    Attributes:
        value: The value; None where the fact is open (or where None is the value).
        origin: `read` from the files, taken from the `target`, a `default` of the producer or of
            `model_type`, declared by the `user`, `inferred` from other facts, or `open`.
        why: The evidence in words.
        keys: Dotted config keys it was read from; empty where it came from tensors.
    """

    value: Any
    origin: Origin
    why: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A fact the files leave open.

    Attributes:
        fact: Name of the fact.
        text: One line that names the readings.
        flag: The command-line flag, with values, that answers it.
    """

    fact: str
    text: str
    flag: str

    def line(self) -> str:
        """Return the question as one line, ready to print."""
        return f"{self.text} Answer with {self.flag}."


@dataclass(frozen=True, slots=True)
class Trap:
    """Something known to go wrong with files like this one; reported, never silently mended.

    Attributes:
        code: Code of the rule (`rules/`), which gives its name and severity.
        message: One sentence: what and where.
        hint: What to do.
        tensor: Stored name of the tensor it is about, or empty.
        key: Dotted config key it is about, or empty.
    """

    code: str
    message: str
    hint: str = ""
    tensor: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class AuxLayers:
    """Which hidden states of the target the drafter is fed.

    Attributes:
        count: Number of states A; 0 for a head fed by the last hidden state only.
        boundaries: Decoder layers already run before each tap, ascending, 0..N; None where the
            rule is `default` and the number of layers is not known.
        rule: `explicit` ids, the `default` rule (2, n//2, n-3), or `last` (one-state head).
    """

    count: int
    boundaries: tuple[int, ...] | None
    rule: Literal["explicit", "default", "last"]

    def outputs(self) -> tuple[int, ...] | None:
        """Return zero-based ids of the layers whose output is tapped; None without boundaries.

        Boundary 0 is the embedding, no layer's output: it has no such id and comes out as -1.
        """
        return None if self.boundaries is None else tuple(b - 1 for b in self.boundaries)


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary positions of the drafter.

    Attributes:
        theta: The base.
        scaling: Everything but the base (`rope_type`, `factor`, `mrope_section`, ...), or None.
        partial_rotary_factor: Share of each head that rotates; 1.0 is all of it.
    """

    theta: float
    scaling: Mapping[str, Any] | None
    partial_rotary_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Mla:
    """Sizes of multi-head latent attention (DeepSeek, Kimi)."""

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """Everything that decides what a drafter computes, apart from its weights.

    Symbols of docstrings elsewhere: h `hidden_size`, H `target_hidden_size`, V `vocab_size`
    (target), D `draft_vocab_size`, A `aux.count`, L `num_layers`.

    Attributes:
        window: Attention window of each layer in tokens, None for full attention.
        attention_bias: Whether q, k and v have biases; `output_bias` whether o has one.
        own_head: False where the drafter borrows the target's lm_head.
        quantization: `quantization_config` of the drafter itself, or None.
        origins: Fact name -> the fact as it was read, with its origin.
    """

    block: Literal["llama", "qwen3", "mla"]
    drafting: Literal["chain", "parallel"]
    input_norm: Literal["none", "concat", "per_aux", "both"]
    feedback: Literal["pre_norm", "post_norm"]
    residual: Literal["raw", "normed"]
    aux: AuxLayers
    num_layers: int
    hidden_size: int
    target_hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    mla: Mla | None
    vocab_size: int
    draft_vocab_size: int
    vocabulary: Literal["full", "reduced"]
    own_embedding: bool
    own_head: bool
    rope: Rope
    rms_norm_eps: float
    max_position_embeddings: int
    hidden_act: str
    attention_bias: bool
    output_bias: bool
    mlp_bias: bool
    fc_bias: bool
    window: tuple[int | None, ...]
    mask_token_id: int | None
    dtype: str
    quantization: Mapping[str, Any] | None
    origins: Mapping[str, Fact] = field(compare=False, repr=False)

    def values(self) -> dict[str, Any]:
        """Return the facts as a plain dict, without their origins."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "origins"}


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """What a drafter needs to know of its target.

    Attributes:
        name: As the user named it.
        model_type: Of the language model.
        num_layers: Decoder layers n; boundaries run from 0 to n.
        hidden_size: H.
        vocab_size: V.
    """

    name: str
    model_type: str
    num_layers: int
    hidden_size: int
    vocab_size: int


#: Names of the facts, in the order in which a person wants to read them.
FACT_NAMES: tuple[str, ...] = tuple(f.name for f in fields(DrafterSpec) if f.name != "origins")


def variant_words(facts: Mapping[str, Any]) -> str:
    """Name the variant in words from fact values, e.g. `EAGLE 3, llama block, normed residual`.

    Open facts are said to be open.
    """

    def value(name: str) -> Any:
        found = facts.get(name)
        return found.value if isinstance(found, Fact) else found

    norm = value("input_norm")
    feedback = value("feedback")
    if norm == "per_aux" and feedback == "post_norm":
        head = "EAGLE 3.1 (fc_norm, norm_output)"
    elif norm == "concat" and feedback == "post_norm":
        head = "EAGLE 3.1 as speculators trains it (norm_before_fc, norm_output)"
    else:
        head = "EAGLE 3"
        if feedback == "post_norm":
            head += " with norm_output"
        if norm == "per_aux":
            head += " with fc_norm"
        elif norm == "concat":
            head += " with norm_before_fc"
        elif norm == "both":
            head += " with fc_norm and norm_before_fc at once"
    words = [head, f"{value('block')} block"]
    if feedback is None:
        words.append("feedback open")
    residual = value("residual")
    words.append("residual open" if residual is None else f"{residual} residual")
    if value("drafting") == "parallel":
        words.append("parallel drafting (P-EAGLE)")
    aux = value("aux")
    if isinstance(aux, AuxLayers) and aux.rule == "last":
        words.append("fed by the last hidden state only")
    layers = value("num_layers")
    words.append(f"{layers} layer{'' if layers == 1 else 's'}")
    vocabulary = value("vocabulary")
    if vocabulary == "reduced":
        words.append(f"draft vocabulary {value('draft_vocab_size')} of {value('vocab_size')}")
    else:
        words.append(f"full vocabulary of {value('vocab_size')}")
    window = value("window")
    if window and any(window):
        words.append("attention window " + "/".join(str(w or "full") for w in window))
    return ", ".join(words)
