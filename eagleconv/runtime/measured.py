"""What a run of drafter and target measured, and what makes it worthless."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eagleconv.runtime.acceptance import Counts, interval, total

#: Texts with fewer different tokens than this share are loops, in which everything is accepted.
LOOP = 0.2
#: Below this gap of the two largest logits, rounding may choose another token.
TIE = 1e-3


@dataclass(frozen=True, slots=True)
class Measured:
    """One prompt.

    Attributes:
        id: Of the prompt.
        category: Of the prompt.
        counts: Of its drafts.
        tokens: New tokens.
        same_text: Whether the text is that of the target alone; None where that was not run.
        distinct: Different tokens per token.
        smallest_gap: Of the two largest target logits, wherever a token was chosen.
        finite: Whether every logit was a number.
        seconds: With the drafter.
        alone_seconds: Of the target alone; None where that was not run.
        draft_seconds: Spent drafting.
        verify_seconds: Spent verifying.
    """

    id: str
    category: str
    counts: Counts
    tokens: int
    same_text: bool | None
    distinct: float
    smallest_gap: float
    finite: bool
    seconds: float
    alone_seconds: float | None
    draft_seconds: float
    verify_seconds: float


@dataclass(frozen=True, slots=True)
class Smoked:
    """What was measured.

    Attributes:
        drafter: Its source; `layouts` and `variant` say what it is.
        target: Its source.
        depth: Tokens per draft.
        temperature: 0 for greedy.
        prompts: Name of the set, and `prompts_digest` its sha256.
        device: What it ran on, by name.
        dtype: What it computed in.
        versions: Of what computed.
        measured: One for each prompt.
        control: Counts with a shuffled head; None where that was not run.
        failures: Sentences; empty where nothing is wrong.
    """

    drafter: str
    drafter_revision: str
    layouts: tuple[str, ...]
    variant: str
    target: str
    depth: int
    temperature: float
    prompts: str
    prompts_digest: str
    device: str
    dtype: str
    versions: dict[str, str]
    measured: tuple[Measured, ...]
    control: Counts | None
    failures: tuple[str, ...]

    @property
    def counts(self) -> Counts:
        """Counts of all prompts."""
        return total([m.counts for m in self.measured])

    @property
    def length_interval(self) -> tuple[float, float]:
        """95 % interval of the mean acceptance length over prompts."""
        return interval([m.counts for m in self.measured], lambda c: c.mean_acceptance_length)

    @property
    def tokens_per_second(self) -> float:
        """New tokens per second with the drafter, after the first of each text."""
        return self._written / sum(m.seconds for m in self.measured)

    @property
    def alone_tokens_per_second(self) -> float | None:
        """The same of the target alone; None where that was not run."""
        seconds = [m.alone_seconds for m in self.measured if m.alone_seconds is not None]
        return self._written / sum(seconds) if seconds else None

    @property
    def _written(self) -> int:
        """Tokens after the first of each text, which comes from reading the prompt."""
        return sum(m.tokens - 1 for m in self.measured)

    @property
    def draft_cost(self) -> float | None:
        """Seconds of one draft step per step of the target alone: c of the speed model."""
        alone, drafts = self.alone_tokens_per_second, self.counts.drafts
        if alone is None or not drafts:
            return None
        return sum(m.draft_seconds for m in self.measured) / (drafts * self.depth) * alone

    @property
    def verify_cost(self) -> float | None:
        """Seconds of one verification per step of the target alone, less one: v of the model."""
        alone, drafts = self.alone_tokens_per_second, self.counts.drafts
        if alone is None or not drafts:
            return None
        return sum(m.verify_seconds for m in self.measured) / drafts * alone - 1


def failures(found: Smoked) -> tuple[str, ...]:
    """Return what makes a measurement worthless, or is a defect, a sentence each."""
    out = []
    broken = [m.id for m in found.measured if not m.finite]
    if broken:
        out.append(f"logits are not numbers (NaN or infinite) on {_some(broken)}")
    counts = found.counts
    if not counts.drafts:
        out.append("nothing was drafted: every text ended with its first token")
    elif counts.accepted == counts.drafted:
        out.append(
            f"all {counts.drafted} drafted tokens were accepted, which no trained drafter reaches: "
            "the texts are loops, or the drafter is the target"
        )
    loops = [m.id for m in found.measured if m.tokens >= 16 and m.distinct < LOOP]
    if len(loops) * 2 > len(found.measured):
        out.append(
            f"{len(loops)} of {len(found.measured)} texts are loops (fewer than {LOOP:.0%} of their "
            "tokens differ), in which anything is accepted: give other prompts, or the chat template"
        )
    other = [m for m in found.measured if m.same_text is False]
    if any(m.smallest_gap > TIE for m in other):
        wrong = [m.id for m in other if m.smallest_gap > TIE]
        out.append(
            f"the text differs from the target's alone on {_some(wrong)}: please report this"
        )
    if found.control is not None and found.control.accepted:
        lost = found.control.mean_acceptance_length - 1
        if lost * 4 > counts.mean_acceptance_length - 1:
            out.append(
                f"a shuffled head reaches {found.control.mean_acceptance_length:.3f}: what was "
                "measured is not the drafter"
            )
    return tuple(out)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
