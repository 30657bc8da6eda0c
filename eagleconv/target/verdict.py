"""One level of a comparison of a drafter with a target."""

from dataclasses import dataclass
from typing import Literal

#: Level -> its stable code and what it compares.
LEVELS: dict[str, tuple[str, str]] = {
    "shapes": ("ECM001", "width, number of layers and model type"),
    "taps": ("ECM002", "the tapped boundaries lie inside the target"),
    "tokenizer": ("ECM003", "ids, merges, added tokens, normaliser, pre-tokenizer"),
    "vocabulary": ("ECM004", "sizes, padding"),
    "chat template": ("ECM005", "the templates, whitespace apart"),
    "positions": ("ECM006", "longest context and rope"),
    "weights": ("ECM007", "recorded rows of every matrix, and the norms"),
    "embedding": ("ECM008", "the drafter's own embedding against the target's rows"),
    "head": ("ECM009", "rows of a head frozen from the target"),
    "names": ("ECM010", "the target that the files name, and its commit"),
    "adapter": ("ECM011", "adapters served with the target"),
}
Verdict = Literal["equal", "harmless", "different", "unknown"]


@dataclass(frozen=True, slots=True)
class Level:
    """What was compared, and how it came out.

    Attributes:
        name: What was compared.
        verdict: `unknown` where one side says nothing.
        sentences: What was found, and where it differs.
        evidence: Whether equality here shows that it is the very target.
    """

    name: str
    verdict: Verdict
    sentences: tuple[str, ...]
    evidence: bool = False
