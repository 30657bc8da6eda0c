"""What engines run: the matrix of variants, and the facts of one engine. Computed from the facts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eagleconv import __version__
from eagleconv.engines import Answer, Engine, answer
from eagleconv.engines.engine import EngineFact, EngineNote, nearest

#: Traits of a usual EAGLE-3 drafter: one llama layer, a head of its own, the target's embedding,
#: the ids of the default taps written out. Its vocabulary is the kind that the engine takes: rows
#: of their own say which.
PLAIN: Mapping[str, Any] = {
    "block": "llama",
    "drafting": "chain",
    "input_norm": "none",
    "feedback": "pre_norm",
    "residual": "raw",
    "vocabulary": None,
    "several_layers": False,
    "mixed_windows": False,
    "window": False,
    "aux_rule": "explicit",
    "aux_three": True,
    "custom_taps": False,
    "first_tap": 2,
    "taps_embedding": False,
    "taps_last": False,
    "taps_as_wide": False,
    "target_type": None,
    "own_embedding": False,
    "own_embedding_same_width": False,
    "attention_bias": False,
    "output_bias": False,
    "mlp_bias": False,
    "fc_bias": False,
    "own_head": True,
    "quantized": False,
    "rope_scaling": False,
    "partial_rotary": False,
    "mla_full_rank_q": False,
    "hidden_act": "silu",
}
_TAPS: Mapping[str, Any] = {"custom_taps": True}
#: Row of the matrix -> what differs from the usual drafter.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "EAGLE-3": {},
    "EAGLE-3.1: fc_norm, norm_output": {"input_norm": "per_aux", "feedback": "post_norm"},
    "fc_norm": {"input_norm": "per_aux"},
    "norm_output": {"feedback": "post_norm"},
    "norm_before_fc": {"input_norm": "concat"},
    "fc_norm and norm_before_fc": {"input_norm": "both"},
    "norm_before_residual": {"residual": "normed"},
    "reduced vocabulary": {"vocabulary": "reduced"},
    "full vocabulary": {"vocabulary": "full"},
    "full vocabulary, no head": {"vocabulary": "full", "own_head": False},
    "own embedding": {"own_embedding": True, "own_embedding_same_width": True},
    "other layers tapped": _TAPS,
    "no layer ids written": {"aux_rule": "default"},
    "two or four taps": {"aux_three": False, **_TAPS},
    "last state only, no fc": {"aux_three": False, "aux_rule": "last"},
    "several layers": {"several_layers": True},
    "qwen3 block (q/k norms)": {"block": "qwen3"},
    "MLA block": {"block": "mla"},
    "MLA block, fc_norm": {"block": "mla", "input_norm": "per_aux"},
    "MLA block, norm_before_fc": {"block": "mla", "input_norm": "concat"},
    "q, k and v biases": {"attention_bias": True},
    "q, k, v and o biases": {"attention_bias": True, "output_bias": True},
    "MLP biases": {"mlp_bias": True},
    "a bias of fc": {"fc_bias": True},
    "attention window": {"window": True},
    "windows that differ by layer": {"window": True, "mixed_windows": True},
    "rope scaling": {"rope_scaling": True},
    "partial rotary": {"partial_rotary": True},
    "quantised by its own config": {"quantized": True},
    "P-EAGLE (parallel drafting)": {"drafting": "parallel"},
}
_CELL = {"supported": "yes", "unknown": "?", "silently wrong": "WRONG", "refused": "no"}
_LEGEND = (
    ("yes", "runs it as it was trained"),
    ("WRONG", "starts, answers correctly, and drafts with something else than was trained"),
    ("no", "is refused"),
    ("?", "was not read about; after a word: from one reading of no pinned version"),
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the matrix: an engine at a version, with one of its model runners."""

    engine: Engine
    version: str
    runner: str

    def answers(self) -> list[Answer]:
        """Return the answer to every variant, in order."""
        return [
            answer(self.engine, {**PLAIN, **changes}, self.version, self.runner or None)
            for changes in VARIANTS.values()
        ]

    def cells(self) -> list[str]:
        """Return the answers in one word each."""
        return [self._cell(found) for found in self.answers()]

    def _cell(self, found: Answer) -> str:
        if found.verdict == "unknown":
            return _CELL["unknown"]
        word = _CELL[found.verdict] + ("" if self.engine.verified else "?")
        return f"{word} ({found.taken})" if found.taken else word

    def head(self) -> tuple[str, str]:
        """Return two lines that name it: engine, and version with the runner."""
        return self.engine.name, f"{self.version} {self.runner}".strip()


def columns(asked: Sequence[tuple[Engine, str]]) -> list[Column]:
    """Return a column for each runner of each engine."""
    return [Column(engine, version, r) for engine, version in asked for r in engine.runners]


def matrix_text(asked: Sequence[tuple[Engine, str]]) -> str:
    """Return the matrix for a terminal."""
    found = columns(asked)
    first = ["", "", *VARIANTS]
    rows = [[first[i]] for i in range(len(first))]
    for column in found:
        for row, cell in zip(rows, (*column.head(), *column.cells()), strict=True):
            row.append(cell)
    widths = [max(len(row[i]) for row in rows) for i in range(len(found) + 1)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines += ["", *(f"{word:6} {meaning}" for word, meaning in _LEGEND), *_notes(asked)]
    return "\n".join(lines) + "\n"


def matrix_markdown(asked: Sequence[tuple[Engine, str]]) -> str:
    """Return the matrix and the facts of every engine as a page (docs/engines.md)."""
    found = columns(asked)
    heads = [" ".join(column.head()) for column in found]
    lines = [
        "# Engines",
        "",
        "What serving engines do with each variant of a drafter, as `eagleconv validate --engine` judges by",
        "it. A row changes one thing of a usual EAGLE-3 drafter: one llama layer, a head of its own, the",
        "target's embedding, the default taps. Made from the facts below by `python docs/build.py`.",
        "",
        f"| variant | {' | '.join(heads)} |",
        f"|---|{'---|' * len(heads)}",
    ]
    cells = [column.cells() for column in found]
    for number, name in enumerate(VARIANTS):
        row = (f"**{c[number]}**" if "WRONG" in c[number] else c[number] for c in cells)
        lines.append(f"| {name} | {' | '.join(row)} |")
    lines += ["", *(f"- `{word}`: {meaning}" for word, meaning in _LEGEND)]
    lines += [f"- {note}" for note in _notes(asked)]
    for engine, version in asked:
        lines += ["", *_page(engine, version, named=False)]
    return "\n".join(lines) + "\n"


def page_markdown(engine: Engine, version: str | None) -> str:
    """Return the facts of one engine; those of one version where one is named."""
    return "\n".join(_page(engine, version or engine.version, named=version is not None)) + "\n"


def page_text(engine: Engine, version: str | None) -> str:
    """Return the facts of one engine for a terminal; those of one version where one is named."""
    lines = [_title(engine, version), *_notes([(engine, version or engine.version)])]
    for fact in _facts(engine, version):
        lines.append(f"\n{fact.verdict}: {fact.reason}")
        lines.append(f"    where: {_when(fact)}")
        lines += [f"    {word}: {value}" for word, value in _marks(fact)]
    lines += [
        f"\nnote: {n.text}{_mark_of(n)}\n    source: {n.source}" for n in _held(engine, version)
    ]
    if engine.serve:
        lines += ["\nserve:", f"    {engine.serve.format(target='TARGET', drafter='DRAFTER')}"]
    return "\n".join(lines) + "\n"


def as_json(asked: Sequence[tuple[Engine, str]], one_version: bool) -> dict[str, Any]:
    """Return engines for programs (schemas/engines.schema.json).

    Args:
        asked: Engines and their versions.
        one_version: Whether only facts of that version are wanted, not those of every version.
    """
    return {
        "schema_version": 1,
        "tool": {"name": "eagleconv", "version": __version__},
        "engines": [
            {
                "name": engine.name,
                "version": version,
                "verified": engine.verified,
                "oldest": engine.oldest,
                "newest": engine.newest,
                "runners": [runner for runner in engine.runners if runner],
                "serve": engine.serve.format(target="TARGET", drafter="DRAFTER"),
                "facts": [
                    {
                        "when": {trait: list(values) for trait, values in fact.when.items()},
                        "verdict": fact.verdict,
                        "reason": fact.reason,
                        "source": fact.source,
                        "versions": fact.versions,
                        "runner": fact.runner,
                    }
                    for fact in _facts(engine, version if one_version else None)
                ],
                "notes": [
                    {"text": n.text, "source": n.source, "versions": n.versions, "runner": n.runner}
                    for n in _held(engine, version if one_version else None)
                ],
            }
            for engine, version in asked
        ],
        "variants": [
            {
                "name": name,
                "changes": dict(changes),
                "answers": [
                    {
                        "engine": column.engine.name,
                        "version": column.version,
                        "runner": column.runner,
                        "verdict": found[number].verdict,
                        "verified": column.engine.verified,
                        "reasons": [reason for reason, _ in found[number].reasons],
                        "notes": list(found[number].notes),
                    }
                    for column, found in _answered(asked)
                ],
            }
            for number, (name, changes) in enumerate(VARIANTS.items())
        ],
    }


def _answered(asked: Sequence[tuple[Engine, str]]) -> list[tuple[Column, list[Answer]]]:
    return [(column, column.answers()) for column in columns(asked)]


def _notes(asked: Sequence[tuple[Engine, str]]) -> list[str]:
    """Return what limits the columns: versions nobody read, variants another runner takes."""
    said = [nearest(engine, version)[1] for engine, version in asked if engine.verified]
    return [
        *filter(None, said),
        *(
            f"{engine.name}: {_traits(fallback.when)} goes from the {fallback.runner} to the "
            f"{fallback.to} runner by itself"
            for engine, _ in asked
            for fallback in engine.fallbacks
        ),
    ]


def _page(engine: Engine, version: str, named: bool) -> list[str]:
    asked = version if named else None
    lines = [f"## {_title(engine, asked)}", ""]
    if named:
        lines += [f"{note}\n" for note in _notes([(engine, version)])]
    lines += ["| where | what happens | why | versions | source |", "|---|---|---|---|---|"]
    for fact in _facts(engine, asked):
        held = ", ".join(filter(None, (fact.versions, fact.runner and f"{fact.runner} runner")))
        cells = (
            _when(fact),
            fact.verdict,
            fact.reason,
            f"`{held}`" if held else "all",
            fact.source,
        )
        lines.append(" | ".join(("", *(cell.replace("|", "\\|") for cell in cells), "")).strip())
    notes = [f"- {n.text}{_mark_of(n)} ({n.source})" for n in _held(engine, asked)]
    lines += ["", *notes] if notes else []
    if engine.serve:
        command = engine.serve.format(target="TARGET", drafter="DRAFTER")
        lines += ["", "```text", command, "```"]
    return lines


def _title(engine: Engine, version: str | None) -> str:
    if version is not None:
        return f"{engine.name} {version}"
    if engine.oldest:
        return f"{engine.name} {engine.oldest} to {engine.newest}"
    return f"{engine.name}, one reading of no pinned version: verdicts are warnings"


def _facts(engine: Engine, version: str | None) -> list[EngineFact]:
    """Return the facts of a version, or all."""
    if version is None:
        return list(engine.facts)
    known, _ = nearest(engine, version)
    return [fact for fact in engine.facts if fact.holds(known)]


def _held(engine: Engine, version: str | None) -> list[EngineNote]:
    if version is None:
        return list(engine.notes)
    known, _ = nearest(engine, version)
    return [note for note in engine.notes if note.holds(known)]


def _traits(when: Mapping[str, tuple[Any, ...]]) -> str:
    """Return conditions in words, as `block mla, not output_bias`."""
    words = []
    for trait, values in when.items():
        shown = " or ".join("not known" if v is None else str(v) for v in values)
        if values == (True,):
            words.append(trait)
        elif values == (False,):
            words.append(f"not {trait}")
        else:
            words.append(f"{trait} {shown}")
    return ", ".join(words)


def _when(fact: EngineFact) -> str:
    return _traits(fact.when)


def _marks(fact: EngineFact) -> list[tuple[str, str]]:
    marks = [("versions", fact.versions), ("runner", fact.runner), ("source", fact.source)]
    return [(word, value) for word, value in marks if value]


def _mark_of(note: EngineNote) -> str:
    held = ", ".join(filter(None, (note.versions, note.runner and f"{note.runner} runner")))
    return f" [{held}]" if held else ""
