"""What every fact is read from: the config under each possible layout, and the tensors."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from eagleconv.checkpoint.checkpoint import Checkpoint
from eagleconv.drafter.contradiction import Contradiction
from eagleconv.drafter.declared import Declared, DerivedTensor
from eagleconv.drafter.evidence import Candidate, lookup
from eagleconv.drafter.facts import Fact, Question, TargetConfig, Trap
from eagleconv.drafter.item_kinds import kind_problem
from eagleconv.drafter.model_types import MODEL_TYPE_DEFAULTS
from eagleconv.drafter.model_types import SOURCE as DEFAULTS_SOURCE
from eagleconv.errors import ConversionError


class Evidence:
    """One checkpoint under all its possible layouts, and what was found out so far."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        found: Sequence[Candidate],
        tensors: Mapping[str, str],
        declared: Declared,
        target: TargetConfig | None,
        *,
        collect: bool = False,
    ) -> None:
        """Take what is known; nothing is read yet."""
        self.collect = collect
        #: Sections that could not be read, and why (collecting only).
        self.unread: dict[str, str] = {}
        self.checkpoint = checkpoint
        self.layouts = [c.layout for c in found]
        self.tensors = tensors
        self.declared = declared
        self.target = target
        self.where = checkpoint.source
        self.shapes = {k: checkpoint.tensors[v].shape for k, v in tensors.items()}
        self.questions: list[Question] = []
        self.traps: list[Trap] = []
        self.dropped: dict[str, str] = {}
        self.derived: dict[str, DerivedTensor] = {}
        #: eagleconv.json describes these very files: their keys mean what it wrote them to mean.
        self.ours = checkpoint.manifest is not None
        if self.ours:
            self.layouts = [x for x in self.layouts if x.name == "eagle-3.1"] or self.layouts

    @contextmanager
    def collecting(self, section: str) -> Iterator[None]:
        """Record a contradiction raised inside, and go on after the block; or let it pass."""
        try:
            yield
        except Contradiction as found:
            self.refuse(found)
            self.unread[section] = found.what
        except ConversionError as found:
            if not self.collect:
                raise
            # Taps that cannot be are the only conversion error of a reader.
            self.traps.append(Trap("ECC032", found.message, found.hint))
            self.unread[section] = found.message

    def refuse(self, found: Contradiction) -> None:
        """Record a contradiction after which reading can go on; raise it if not collecting."""
        if not self.collect:
            raise found
        trap = Trap(found.code, found.what, found.hint, found.tensor, found.key)
        if trap not in self.traps:
            self.traps.append(trap)

    def get(self, item: str) -> tuple[Any, str]:
        """Return the first value of a config item under any possible layout, and its key.

        Raises:
            SourceError: It is of the wrong kind.
        """
        for layout in self.layouts:
            for path, name in (*layout.keys, *layout.read_also):
                if name == item:
                    value = lookup(self.checkpoint.config, path)
                    if value is not None:
                        problem = kind_problem(item, value)
                        if problem:
                            raise Contradiction(
                                "ECC006",
                                self.where,
                                f"config.json key {path} is {json.dumps(value)[:60]}, {problem}",
                                "correct the config",
                                key=path,
                            )
                        return value, path
        return None, ""

    def default(self, item: str) -> Any:
        """Return what an absent key means for the config's `model_type`, or None."""
        config = self.checkpoint.config
        model_type = self.get("layer_model_type")[0]
        if "transformer_layer_config" not in config:
            model_type = config.get("model_type") or "llama"
        # In a layer config without model_type, speculators assumes qwen3 and vLLM llama.
        return MODEL_TYPE_DEFAULTS.get(str(model_type), {}).get(item)

    def scalar(self, item: str) -> Fact:
        """Read a config item; its `model_type` default where it is absent.

        Raises:
            SourceError: It is absent and has no default.
        """
        value, key = self.get(item)
        if value is not None:
            return Fact(value, "read", "config.json", (key,))
        value = self.default(item)
        if value is None:
            model_type = self.checkpoint.config.get("model_type")
            raise Contradiction(
                "ECC007",
                self.where,
                f"config.json has no {item}, and model_type {model_type!r} has no known default",
                f"add {item} to the config with the value the weights were trained with",
                key=item,
            )
        return Fact(value, "default", f"absent; default of model_type in {DEFAULTS_SOURCE}")

    def ids(self, path: str) -> list[int] | None:
        """Return layer ids at a path, or None.

        Raises:
            SourceError: They are no list of integers.
        """
        value = lookup(self.checkpoint.config, path)
        if value is None:
            return None
        if not isinstance(value, list) or not value or any(type(i) is not int for i in value):
            raise Contradiction(
                "ECC033",
                self.where,
                f"config.json key {path} is {value!r}, expected a list of integers",
                "engines fall back to default taps silently; correct it",
                key=path,
            )
        return value
