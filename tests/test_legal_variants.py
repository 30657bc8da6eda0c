"""Drafters that are right are not refused: executorch#20149, and every variant trainers write.

A false alarm costs as much as a miss. Without an engine none of these has an error; with
vLLM 0.32, which runs nearly all of them, none either.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import eagleconv
from eagleconv.drafter.facts import AuxLayers, Rope
from eagleconv.rules.finding import Validated
from tests.test_bug_census import CENSUS, LEGAL, expect
from tests.test_fixtures import FIXTURES, VALID
from tests.test_traps import made
from tests.test_upgrade_cli import ROOT

VLLM = ["vllm==0.32"]
TARGETS = FIXTURES / "targets"
#: Sizes of the drafters that `made` writes.
SIZES = {"hidden_size": 64, "num_hidden_layers": 8, "vocab_size": 160}
TAPS = AuxLayers(3, (2, 4, 5), "explicit")
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}


def errors(result: Validated) -> list[str]:
    assert not result.unreadable, result.unreadable
    return [f"{f.code} {f.message}" for f in result.findings if f.severity == "error"]


def target(tmp_path: Path, config: dict[str, Any]) -> str:
    directory = tmp_path / "target"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    return str(directory)


def copied(name: str, tmp_path: Path, **config: Any) -> Path:
    """Copy a fixture and change keys of its config."""
    source = tmp_path / "eagle3-source"
    shutil.copytree(FIXTURES / "valid" / name, source, ignore=shutil.ignore_patterns("expect.json"))
    path = source / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return source


# Fixtures.

#: Fixtures whose files are an error by design, whoever serves them.
BY_DESIGN = {
    "automodel-run": "its map lies in a side file",
    "automodel-side-files": "a trainer's own files",
    "specforge-state": "a trainer's own files",
    "specforge-peagle-state": "a trainer's own files",
    "d2t-absolute": "d2t holds absolute ids",
    "input-norm-without-flag": "a norm without its key",
    "fc-norm-without-flag": "a norm without its key",
}


@pytest.mark.parametrize("deep", [False, True], ids=["headers", "deep"])
@pytest.mark.parametrize("fixture", VALID, ids=lambda p: p.name)
def test_a_sound_drafter_has_no_error_without_an_engine(fixture: Path, deep: bool) -> None:
    result = eagleconv.validate(str(fixture), deep=deep)
    assert bool(errors(result)) == (fixture.name in BY_DESIGN)


@pytest.mark.parametrize(
    "fixture",
    [p for p in VALID if expect(p)["engines"] == {"vllm": "supported", "vllm_before": True}],
    ids=lambda p: p.name,
)
def test_a_drafter_that_vllm_runs_has_no_error_with_it(fixture: Path) -> None:
    """`vllm_before`: real vLLM loads the files as they are and computes what was trained."""
    result = eagleconv.validate(str(fixture), engines=VLLM)
    if fixture.name in ASKED:
        assert {f.code for f in result.findings if f.severity == "error"} == {"ECC031"}
    else:
        assert errors(result) == []
    assert "refused" not in {e.verdict for e in result.engines}
    assert "computes something else" not in {e.verdict for e in result.engines}


#: vLLM runs them, but nothing says that it taps the layers they were trained with.
ASKED = ("modelopt-no-ids", "speculators-converted", "modelopt-speculators")


def test_legal_rows_of_the_census_are_rows() -> None:
    assert set(LEGAL) <= set(CENSUS)


# Optional fields: executorch#20149.


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("torchspec-full", True),  # full vocabulary, no d2t
        ("borrowed-head", True),  # draft_vocab_size null, no lm_head
        ("specforge", True),  # no embed_tokens
        ("speculators-null-ids", True),  # ids null
        ("speculators-old", True),  # none of the 3.1 keys
        ("torchspec-mla", True),
        ("flat-qwen3", True),
        ("speculators-qwen3", True),
        ("speculators-peagle", True),
        ("speculators-window", True),
        ("modelopt-fp8", None),
        ("modelopt-one-state", None),  # vLLM's V2 runner ignores the flag
    ],
)
def test_a_variant_is_no_error(name: str, runs: bool | None) -> None:
    source = FIXTURES / "valid" / name
    assert errors(eagleconv.validate(str(source))) == []
    if runs:
        assert errors(eagleconv.validate(str(source), engines=VLLM)) == []


def test_a_one_state_head_is_an_error_only_where_an_engine_ignores_it() -> None:
    result = eagleconv.validate(str(FIXTURES / "valid" / "modelopt-one-state"), engines=VLLM)
    verdicts = {e.runner: e.verdict for e in result.engines}
    assert verdicts["V1"] != "refused"
    for finding in result.findings:
        if finding.severity == "error":
            assert "V2" in finding.message


def test_a_quantised_drafter_is_not_refused_by_vllm() -> None:
    """Its layer ids are ModelOpt's, which vLLM's V1 runner takes for boundaries."""
    result = eagleconv.validate(str(FIXTURES / "valid" / "modelopt-fp8"), engines=VLLM)
    assert {f.code for f in result.findings if f.severity == "error"} == {"ECE006"}
    assert "refused" not in {e.verdict for e in result.engines}


# Positions and taps.


@pytest.mark.parametrize("scaling", [None, YARN], ids=["default", "yarn"])
def test_rope_may_be_unlike_the_targets(scaling: dict[str, Any] | None, tmp_path: Path) -> None:
    """Model-Optimizer#917: trained with default rope, exported with YaRN, on purpose."""
    source = made(tmp_path, "eagle-3.1", aux=TAPS, rope=Rope(10000.0, scaling))
    rope = {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0}
    beside = target(tmp_path, {**SIZES, "model_type": "llama", "rope_parameters": rope})
    result = eagleconv.validate(str(source), target=beside, engines=VLLM)
    assert errors(result) == []
    assert not [f for f in result.findings if f.code.startswith("ECR") and f.severity != "info"]


def test_the_last_boundary_is_the_number_of_layers(tmp_path: Path) -> None:
    source = made(tmp_path, "eagle-3.1", aux=AuxLayers(3, (2, 4, 8), "explicit"))
    beside = target(tmp_path, {**SIZES, "model_type": "llama"})
    for engines in ([], VLLM):
        assert errors(eagleconv.validate(str(source), target=beside, engines=engines)) == []


def test_four_taps(tmp_path: Path) -> None:
    source = made(tmp_path, "eagle-3.1", aux=AuxLayers(4, (1, 3, 6, 8), "explicit"))
    beside = target(tmp_path, {**SIZES, "model_type": "llama"})
    for engines in ([], VLLM):
        assert errors(eagleconv.validate(str(source), target=beside, engines=engines)) == []


# Targets.


@pytest.mark.parametrize("vocab", [192, 256, 512])
def test_a_padded_target_is_a_warning(vocab: int, tmp_path: Path) -> None:
    """vllm#5203: one tokenizer, embeddings padded to another multiple."""
    source = made(tmp_path, "eagle-3.1", aux=TAPS)
    beside = target(tmp_path, {**SIZES, "model_type": "llama", "vocab_size": vocab})
    result = eagleconv.validate(str(source), target=beside, engines=VLLM)
    assert errors(result) == []
    assert "ECP002" in {f.code for f in result.findings}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda text: {"model_type": "qwen3_vl", "text_config": text, "vision_config": {}},
        lambda text: {"model_type": "omni", "thinker_config": {"text_config": text}},
        lambda text: {"model_type": "kimi_k25", "text_config": text, "vocab_size": 9},
        lambda text: {"model_type": "internvl", "llm_config": text},
    ],
    ids=["text_config", "twice", "outer keys", "llm_config"],
)
def test_a_vision_language_target_is_read_inside(wrap: Any, tmp_path: Path) -> None:
    source = made(tmp_path, "eagle-3.1", aux=TAPS)
    text = {**SIZES, "model_type": "qwen3", "max_position_embeddings": 4096}
    beside = target(tmp_path, wrap(text))
    result = eagleconv.validate(str(source), target=beside, engines=VLLM)
    assert errors(result) == []
    positions = [f.message for f in result.findings if f.code == "ECR005"]
    assert len(positions) == 1
    assert "4096" in positions[0]


def test_the_target_among_the_fixtures_is_nested_twice() -> None:
    source = FIXTURES / "valid" / "padded-target"
    result = eagleconv.validate(str(source), target=str(TARGETS / "vision"), engines=VLLM)
    assert errors(result) == []


# What this version does not know.


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"my_trainer_note": {"a": 1}, "_commit": "abc"}, "ECC017"),
        ({"model_type": "llama9"}, ""),
        ({"dtype": "float8_e9m1"}, "ECC008"),
        ({"layer_types": ["linear_attention"]}, "ECW001"),
        ({"transformers_version": "9.0.0"}, ""),
        ({"rope_parameters": {"rope_theta": 10000.0, "rope_type": "spiral", "turns": 3}}, ""),
        ({"attn_implementation": "flash_attention_9"}, ""),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_a_newer_value_warns_and_does_not_fail(
    config: dict[str, Any], code: str, tmp_path: Path
) -> None:
    result = eagleconv.validate(str(copied("torchspec-full", tmp_path, **config)))
    assert errors(result) == []
    found = {f.code: f.severity for f in result.findings}
    assert not code or found[code] in ("warning", "info")


def test_a_newer_speculators_version(tmp_path: Path) -> None:
    source = copied("speculators", tmp_path, speculators_version="1.7.0", new_flag=None)
    result = eagleconv.validate(str(source), engines=VLLM)
    assert errors(result) == []


# The real drafter.


def test_a_real_drafter_has_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = eagleconv.validate(
        "fixtures/smollm2-135m-eagle3",
        target="fixtures/targets/smollm2-135m-instruct",
        engines=[*VLLM, "sglang"],
        context_length=2048,
        deep=True,
    )
    assert errors(result) == []
    assert {e.verdict for e in result.engines} == {"runs as trained"}
    # Its target was dequantised to float32; SpecForge's rope base depends on its version.
    assert {f.code for f in result.findings if f.severity == "warning"} == {"ECQ004", "ECR002"}


def test_a_rope_type_that_vllm_does_not_have_is_told_with_it_only(tmp_path: Path) -> None:
    rope = {"rope_theta": 10000.0, "rope_type": "spiral", "turns": 3}
    source = copied("torchspec-full", tmp_path, rope_parameters=rope)
    assert errors(eagleconv.validate(str(source))) == []
    result = eagleconv.validate(str(source), engines=VLLM)
    assert {f.code for f in result.findings if f.severity == "error"} == {"ECE002"}
    assert {e.verdict for e in result.engines} == {"refused"}
