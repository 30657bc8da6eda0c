"""Validations made by hand, and a way to run `validate` on them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import eagleconv
from eagleconv.cli.main import cli
from eagleconv.rules.finding import (
    EngineVerdict,
    Finding,
    Location,
    Severity,
    Skipped,
    Validated,
)
from eagleconv.rules.rule import Rule

CONFIG = """{
  "model_type": "llama",
  "norm_output": true,
  "eagle_config": {
    "eagle_aux_hidden_state_layer_ids": [
      1, 14, 26
    ]
  },
  "rope_theta": 10000.0
}
"""


def rule(code: str, name: str, severity: Severity, **other: Any) -> Rule:
    """Return a rule with a page."""
    return Rule(
        code,
        name,
        severity,
        f"{name} is checked. In two sentences.",
        "Engines differ ([vllm#1](https://github.com/vllm-project/vllm/issues/1)).",
        '`"norm_output": true`',
        "Say which.",
        **other,
    )


RULES = (
    rule("ECC003", "norm-tensors-without-flag", "error", flag="upgrade"),
    rule("ECC018", "feedback-open", "warning", flag="--norm-output-meaning"),
    rule("ECT001", "unknown-tensor", "error"),
    rule("ECV002", "map-out-of-range", "error"),
    rule("ECE001", "engine-computes-something-else", "error", needs=("engine",)),
    rule("ECP001", "width-differs", "error", needs=("target",)),
)
OPEN = Finding(
    "ECC018",
    "feedback-open",
    "warning",
    "norm_output is true, which two trainers mean differently",
    Location("config.json", key="norm_output"),
    "say which with --norm-output-meaning",
)
IDS = Finding(
    "ECC003",
    "norm-tensors-without-flag",
    "error",
    "the ids are one off: 100% of 3, as read: 1, 14, 26",
    Location("config.json", key="eagle_config.eagle_aux_hidden_state_layer_ids"),
    engine="vllm 0.32.0",
)
TENSOR = Finding(
    "ECT001",
    "unknown-tensor",
    "error",
    "tensor fc_norm.3.weight has no place",
    Location("model.safetensors", tensor="fc_norm.3.weight"),
    "remove it",
)
NOWHERE = Finding("ECC018", "feedback-open", "info", "nothing else is known")
SKIPPED = (
    Skipped("ECE001", "engine-computes-something-else", "no engine was asked for: give --engine"),
    Skipped("ECP001", "width-differs", "there is no target: give --target"),
)
ENGINES = (
    EngineVerdict("vllm", "0.32.0", "V1", "runs as trained"),
    EngineVerdict("vllm", "0.32.0", "V2", "computes something else", ("it reads | ids (a.py:3)",)),
)


def validated(source: str = "ckpt", *findings: Finding, **other: Any) -> Validated:
    """Return the result for a checkpoint that could be checked."""
    facts: dict[str, Any] = {
        "layouts": ("SpecForge",),
        "producers": ("SpecForge", "SGLang"),
        "variant": "EAGLE 3 with its <own> head",
        "checks_run": ("ECC003", "ECC018", "ECT001", "ECV002"),
        "skipped": SKIPPED,
        "findings": findings,
    }
    return Validated(source, **{**facts, **other})


def unreadable(source: str = "gone") -> Validated:
    """Return the result for a source that could not be read."""
    return Validated(source, unreadable=f"{source}: no such directory", hint="give another")


class Fake:
    """`eagleconv.validate`, with the results given; remembers how it was called."""

    def __init__(self, *results: Validated) -> None:
        self.results = {r.source: r for r in results}
        self.calls: dict[str, dict[str, Any]] = {}

    def __call__(self, source: str, **options: Any) -> Validated:
        """Return the result for a source."""
        self.calls[source] = options
        return self.results.get(source) or validated(source)


@pytest.fixture(name="here")
def standing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty directory with one checkpoint, `ckpt`, outside of any CI."""
    for name in ("GITHUB_WORKSPACE", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "config.json").write_text(CONFIG)
    (tmp_path / "ckpt" / "model.safetensors").write_bytes(b"")
    return tmp_path


def run(
    monkeypatch: pytest.MonkeyPatch, results: Sequence[Validated], *args: str, env: Any = None
) -> tuple[Result, Fake]:
    """Run `eagleconv validate` with results made by hand."""
    fake = Fake(*results)
    monkeypatch.setattr(eagleconv, "validate", fake)
    monkeypatch.setattr("eagleconv.rules.RULES", RULES)
    result = CliRunner().invoke(cli, ["validate", *args], env=env)
    return result, fake
