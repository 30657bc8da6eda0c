"""What rules look at: a drafter as far as it could be read, its bytes, a target, engines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eagleconv.checkpoint.checkpoint import Checkpoint
from eagleconv.drafter.evidence import lookup
from eagleconv.drafter.facts import Fact
from eagleconv.drafter.read import NO_LAYOUT, Drafter
from eagleconv.engines.engine import Engine
from eagleconv.engines.loadings import LOADINGS
from eagleconv.engines.read_config import holds
from eagleconv.rules.known_keys import unknown_keys
from eagleconv.rules.values import Summary, summarise
from eagleconv.target.view import TargetView

if TYPE_CHECKING:
    from eagleconv.rules.engine import Judgement

#: Tensors up to this many bytes are looked at without --deep: norms and biases.
SMALL = 1 << 18


@dataclass(slots=True)
class Subject:
    """One checkpoint under validation.

    Attributes:
        drafter: Read with contradictions collected.
        engines: (engine, version) asked for.
        target: The target, or None.
        context_length: The context that is planned, or None.
        deep: Whether all tensors are read.
        judged: What the engines do otherwise, once it was asked for.
    """

    drafter: Drafter
    engines: tuple[tuple[Engine, str], ...] = ()
    target: TargetView | None = None
    context_length: int | None = None
    deep: bool = False
    judged: tuple[Judgement, ...] | None = None
    _summaries: dict[str, Summary | None] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Checkpoint:
        """The opened files."""
        return self.drafter.checkpoint

    @property
    def fallback(self) -> bool:
        """Whether no known layout fits and the flat one was assumed."""
        return self.drafter.candidates[0].evidence == (NO_LAYOUT,)

    def fact(self, name: str) -> Fact:
        """Return a fact that could be read."""
        return self.drafter.facts[name]

    def value(self, name: str) -> Any:
        """Return a fact's value; None where it is open or could not be read."""
        fact = self.drafter.facts.get(name)
        return fact.value if fact is not None else None

    def lookup(self, path: str) -> Any:
        """Return a value of config.json by dotted path, or None."""
        return lookup(self.checkpoint.config, path)

    def ids_written(self) -> bool:
        """Whether layer ids are in the config at all."""
        name = "eagle_aux_hidden_state_layer_ids"
        return bool(self.lookup(name) or self.lookup(f"eagle_config.{name}"))

    def unknown_keys(self) -> list[str]:
        """Return config keys that neither a layout nor an engine knows."""
        return unknown_keys(self.checkpoint.config)

    def summary(self, stored: str) -> Summary | None:
        """Summarise a tensor; None where it is not looked at (large, without --deep)."""
        tensor = self.checkpoint.tensors[stored]
        small = len(tensor.shape) == 1 and tensor.nbytes <= SMALL
        if not (small or self.deep):
            return None
        if stored not in self._summaries:
            self._summaries[stored] = summarise(self.checkpoint, tensor)
        return self._summaries[stored]

    def positions_by_engine(self) -> Iterator[tuple[str, bool]]:
        """Yield (engine, whether it runs off its rotary cache) for --context-length."""
        if not self.engines:
            yield "", False
        for engine, version in self.engines:
            loading = LOADINGS.get(engine.name)
            raised = loading.positions_raised if loading is not None else ""
            yield engine.name, bool(raised) and not holds(raised, version)

    def target_name(self) -> str:
        """Return the target as the user named it, or an empty string."""
        return self.target.facts.name.rstrip("/") if self.target else ""

    def target_positions(self) -> int | None:
        """Return the target's max_position_embeddings, if it says one."""
        value = self.target.value("max_position_embeddings") if self.target else None
        return value if isinstance(value, int) else None

    def target_tokenizer_size(self) -> int | None:
        """Return one more than the largest id of a local target's tokenizer.json, if there is one."""
        if self.target is None or not self.target.directory:
            return None
        path = os.path.join(self.target.directory, "tokenizer.json")
        try:
            with open(path, encoding="utf-8") as file:
                text = json.load(file)
            model = text["model"]["vocab"]
            ids = list(model.values()) if isinstance(model, dict) else list(range(len(model)))
            ids += [token["id"] for token in text.get("added_tokens", ())]
            return max(ids) + 1
        except (OSError, ValueError, KeyError, TypeError):
            return None
