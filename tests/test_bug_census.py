"""The census of public reports about EAGLE-3 drafters: what `validate` makes of each of them.

Every row has a fixture that shows its fault (or the legal variant that was rejected), and every
fixture says in its expect.json which codes `validate` must find, no more and no fewer. Rows that no
look at files can catch say so there, and name the command that can.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import eagleconv
from eagleconv.rules.finding import Validated
from eagleconv.rules.outcome import Checked, outcome
from tests.test_fixtures import FIXTURES, INVALID, VALID
from tests.test_upgrade_cli import ROOT

#: Row -> its threads and commits, each below https://github.com/.
CENSUS: dict[str, tuple[str, ...]] = {
    "B001": (
        "sgl-project/sglang/issues/9135",
        "Tencent/AngelSlim/issues/39",
    ),
    "B002": (
        "vllm-project/speculators/issues/1114",
        "vllm-project/speculators/pull/1131",
        "vllm-project/speculators/commit/01b5da54",
    ),
    "B003": ("NVIDIA-NeMo/Automodel/pull/2841",),
    "B004": (
        "sgl-project/SpecForge/commit/273f64d9",
        "vllm-project/speculators/commit/46199391",
        "Tencent/AngelSlim/issues/173",
    ),
    "B024": ("vllm-project/vllm/pull/38111",),
    "B025": ("vllm-project/vllm/pull/46488",),
    "B026": ("sgl-project/SpecForge/pull/879",),
    "B027": ("vllm-project/speculators/pull/670",),
    "B028": (
        "vllm-project/speculators/pull/610",
        "vllm-project/speculators/pull/692",
    ),
    "B029": (
        "vllm-project/speculators/pull/52",
        "vllm-project/speculators/pull/53",
    ),
    "B036": ("sgl-project/sglang/pull/25454",),
    "B037": ("vllm-project/vllm/pull/50170",),
    "B052": ("verl-project/verl-SpeCo/pull/66",),
    "B053": ("NVIDIA-NeMo/Automodel/pull/2447",),
    "B054": ("mobilint/mblt-model-zoo/pull/110",),
    "B055": (
        "sgl-project/SpecForge/pull/602",
        "vllm-project/speculators/pull/1081",
        "vllm-project/speculators/commit/b6bccf38",
    ),
    "B056": ("pytorch/executorch/pull/20149",),
    "B057": (
        "vllm-project/vllm/issues/5203",
        "vllm-project/vllm/pull/13849",
        "vllm-project/vllm/pull/42775",
    ),
    "B058": ("sgl-project/sglang/pull/23838",),
    "B069": (
        "lightseekorg/TorchSpec/issues/38",
        "lightseekorg/TorchSpec/commit/7fe42ac",
    ),
    "B070": ("sgl-project/sglang/pull/9739",),
    "B071": (
        "sgl-project/SpecForge/issues/139",
        "sgl-project/SpecForge/pull/140",
        "NVIDIA-NeMo/Automodel/pull/2319",
        "wejoncy/sfllm/pull/32",
    ),
    "B080": (
        "vllm-project/vllm/issues/48894",
        "vllm-project/vllm/issues/23072",
        "vllm-project/vllm/pull/49343",
    ),
    "B081": ("vllm-project/speculators/pull/574",),
    "B082": ("NVIDIA-NeMo/Automodel/pull/2920",),
    "B083": (
        "NVIDIA/Model-Optimizer/pull/917",
        "NVIDIA/Model-Optimizer/pull/1238",
    ),
    "B096": (
        "vllm-project/speculators/commit/f6745b1c",
        "vllm-project/speculators/pull/134",
        "NVIDIA/Model-Optimizer/pull/398",
        "NVIDIA/TensorRT-LLM/pull/3633",
    ),
    "B101": (
        "sgl-project/sglang/pull/28196",
        "neuralmagic/vllm/pull/120",
        "vllm-project/vllm/issues/25134",
    ),
    "B102": (
        "sgl-project/sglang/issues/3824",
        "sgl-project/sglang/issues/5153",
        "sgl-project/sglang/pull/3431",
        "sgl-project/sglang/pull/25894",
    ),
    "B103": (
        "vllm-project/speculators/commit/7d7b0b49",
        "vllm-project/speculators/pull/136",
    ),
    "B109": (
        "SafeAILab/EAGLE/issues/98",
        "SafeAILab/EAGLE/issues/106",
        "Red-Hat-AI-Innovation-Team/training_hub/issues/86",
    ),
    "B113": ("sgl-project/SpecForge/commit/1de70d18",),
    "B122": ("NVIDIA/TensorRT-Edge-LLM/issues/162",),
    "B126": ("NVIDIA/Model-Optimizer/pull/2201",),
}
#: Reports about a checkpoint that was right: it has to pass.
LEGAL = ("B004", "B028", "B056", "B057", "B070", "B083")
ALL = (*VALID, *INVALID)


def expect(fixture: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((fixture / "expect.json").read_text())
    return found


def validated(fixture: Path, tmp_path: Path) -> Validated:
    """Validate a copy of a fixture with the flags of its expect.json."""
    source = tmp_path / "eagle3-source"
    shutil.copytree(fixture, source, ignore=shutil.ignore_patterns("expect.json"))
    return eagleconv.validate(str(source), **expect(fixture)["validate"]["flags"])


def codes(result: Validated, severity: str) -> list[str]:
    return sorted({f.code for f in result.findings if f.severity == severity})


def fixtures_of(row: str) -> list[Path]:
    return [fixture for fixture in ALL if row in expect(fixture)["bugs"]]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags of fixtures name targets from there."""
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("fixture", ALL, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_validate_finds_what_is_there_and_nothing_else(fixture: Path, tmp_path: Path) -> None:
    wanted = expect(fixture)["validate"]
    result = validated(fixture, tmp_path)
    assert codes(result, "error") == wanted["codes"]
    assert codes(result, "warning") == wanted["warnings"]
    assert codes(result, "info") == wanted["infos"]
    assert outcome([Checked(result)]).exit_code == wanted["exit"]
    assert bool(result.unreadable) == (wanted["exit"] == 3)


@pytest.mark.parametrize("fixture", ALL, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_every_finding_says_where_and_what_to_do(fixture: Path, tmp_path: Path) -> None:
    result = validated(fixture, tmp_path)
    for finding in result.findings:
        assert finding.message
        assert finding.hint
        assert "None" not in finding.message
        assert "{" not in finding.message.replace("{'", "").replace('{"', "")
        # A training run keeps its checkpoint in model/.
        places = [tmp_path / "eagle3-source" / d / finding.location.file for d in ("", "model")]
        assert any(place.exists() for place in places)


def test_the_census_is_covered() -> None:
    assert {row for fixture in ALL for row in expect(fixture)["bugs"]} == set(CENSUS)


def test_the_count_of_the_census(capsys: pytest.CaptureFixture[str]) -> None:
    caught, legal, beyond = [], [], []
    for row in CENSUS:
        shown = [expect(fixture)["validate"] for fixture in fixtures_of(row)]
        if any("uncatchable" in v for v in shown):
            assert all("uncatchable" in v and not v["codes"] for v in shown), row
            beyond.append(row)
        elif row in LEGAL:
            assert all(v["exit"] == 0 and not v["codes"] for v in shown), row
            legal.append(row)
        else:
            assert all(v["codes"] or v["warnings"] for v in shown), row
            caught.append(row)
    with capsys.disabled():
        print(
            f"\ncensus of reports: caught {len(caught) + len(legal)} of {len(CENSUS)} "
            f"({len(legal)} of them legal variants that pass, {len(beyond)} uncatchable by files)"
        )
    assert (len(caught), len(legal), len(beyond)) == (24, 6, 4)


def test_uncatchable_rows_name_the_command_that_can() -> None:
    commands = ("match", "smoke", "doctor", "diff")
    for fixture in ALL:
        for word in ("uncatchable", "limit"):
            why = expect(fixture)["validate"].get(word)
            assert why is None or any(c in why for c in commands), fixture.name


@pytest.mark.parametrize("name", ["shared-embedding", "pickled-target"])
def test_a_target_in_one_file_of_either_kind_is_compared(name: str, tmp_path: Path) -> None:
    """SpecForge@273f64d9: a target without an index, or with a .bin only, has an embedding too."""
    result = validated(FIXTURES / "valid" / name, tmp_path)
    assert "ECP005" in result.checks_run
    assert not {"ECP005", "ECP006"} & {s.code for s in result.skipped}


@pytest.mark.parametrize("fixture", VALID, ids=lambda p: p.name)
def test_the_variant_is_named(fixture: Path, tmp_path: Path) -> None:
    """speculators#610: "Eagle 3.1" is several variants."""
    wanted, result = expect(fixture), validated(fixture, tmp_path)
    # A norm whose flag says otherwise, or a feedback that is open, is named as it is read.
    asked = {f.code for f in result.findings} & {"ECC003", "ECC018", "ECC019", "ECW001"}
    if not asked:
        assert result.variant == wanted["variant"]
    assert sorted(result.layouts) == sorted(wanted["layouts"])
