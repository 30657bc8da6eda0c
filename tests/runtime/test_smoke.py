"""`smoke` from end to end on a made pair: formats, thresholds, exit codes, failures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from eagleconv.checkpoint.schema import load  # noqa: E402
from eagleconv.cli.main import cli  # noqa: E402
from eagleconv.errors import MissingExtraError, SourceError, UsageError  # noqa: E402
from eagleconv.report.acceptance import as_lines, below  # noqa: E402
from eagleconv.runtime.acceptance import Counts, count  # noqa: E402
from eagleconv.runtime.measured import Measured, Smoked, failures  # noqa: E402
from eagleconv.runtime.smoke import shuffled_head  # noqa: E402
from tests.target import made_pair  # noqa: E402


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("smoke")
    made_pair.target(root / "target")
    tokens = {
        "bos_token": "<|end|>",
        "eos_token": "<|end|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (root / "target/tokenizer_config.json").write_text(json.dumps(tokens))
    made_pair.drafter(root / "drafter")
    return root


def run(pair: Path, *args: str) -> Result:
    command = ["smoke", str(pair / "drafter"), str(pair / "target"), "--device", "cpu"]
    command += ["--limit", "3", "--max-new-tokens", "12", *args]
    return CliRunner().invoke(cli, command, standalone_mode=False)


def test_the_report_is_counts_first(pair: Path) -> None:
    result = run(pair, "--format", "json", "--negative-control")
    report = json.loads(result.stdout)
    jsonschema.Draft202012Validator(load("acceptance")).validate(report)
    counts = report["acceptance"]
    # A random drafter of a random target: 11 tokens after the first, one for each draft.
    assert (counts["drafts"], counts["accepted"]) == (33, 0)
    assert counts["mean_acceptance_length"] == 1.0
    assert all(p["same_text"] for p in report["by_prompt"])
    assert report["device"].startswith("CPU")
    assert (report["dtype"], report["prompts"]["name"]) == ("float32", "built-in")
    assert report["control"]["accepted"] == 0
    assert result.exit_code == (1 if report["findings"] else 0)


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_it_is_shown(pair: Path, form: str) -> None:
    result = run(pair, "--format", form, "--no-compare")
    assert "1.000" in result.stdout
    assert "position" in result.stdout
    assert "the target alone was not run" in result.stdout


def test_thresholds_exit_with_1(pair: Path) -> None:
    for args, sentence in (
        (("--min-acceptance-length", "1.2"), "mean acceptance length 1.000 is below 1.2"),
        (("--min-acceptance", "0,0.1"), "acceptance at position 2 is 0.000, below 0.1"),
    ):
        result = run(pair, "--no-compare", *args)
        assert result.exit_code == 1
        assert f"failed: {sentence}" in result.stdout


@pytest.mark.parametrize(
    ("args", "kind", "sentence"),
    [
        (("--min-acceptance", "2"), UsageError, "not shares from 0 to 1"),
        (("--min-acceptance", "a"), UsageError, "not shares from 0 to 1"),
        (("--min-acceptance", "0,0,0,0"), UsageError, "4 positions, --depth 3"),
        (("--dtype", "int8"), UsageError, "is not auto"),
        (("--device", "tpu"), UsageError, "is not auto"),
        (("--prompts", "/none"), SourceError, "cannot be read"),
    ],
)
def test_bad_calls(pair: Path, args: tuple[str, ...], kind: Any, sentence: str) -> None:
    found = run(pair, *args).exception
    assert isinstance(found, kind)
    assert sentence in str(found)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_no_gpu_is_exit_5(pair: Path) -> None:
    found = run(pair, "--device", "cuda").exception
    assert isinstance(found, MissingExtraError)
    assert found.exit_code == 5


def test_a_target_that_does_not_load(pair: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((pair / "target/config.json").read_text())
    result = CliRunner().invoke(
        cli, ["smoke", str(pair / "drafter"), str(tmp_path)], standalone_mode=False
    )
    assert isinstance(result.exception, SourceError)
    assert "cannot be loaded" in str(result.exception)


GOOD = Measured("p", "", count(3, [1, 0, 2]), 21, True, 0.8, 0.5, True, 1.0, 1.0, 0.1, 0.8)


def smoked(*measured: Measured, control: Counts | None = None) -> Smoked:
    found = Smoked(
        "d", "", ("l",), "v", "t", 3, 0.0, "built-in", "0" * 64, "CPU", "float32", {},
        measured or (GOOD,), control, (),
    )  # fmt: skip
    return replace(found, failures=failures(found))


@pytest.mark.parametrize(
    ("measured", "sentence"),
    [
        (replace(GOOD, finite=False), "not numbers"),
        (replace(GOOD, counts=count(3, [3, 3])), "all 6 drafted tokens were accepted"),
        (replace(GOOD, counts=count(3, [])), "nothing was drafted"),
        (replace(GOOD, distinct=0.1), "are loops"),
        (replace(GOOD, same_text=False), "differs from the target's alone"),
    ],
)
def test_what_is_no_success(measured: Measured, sentence: str) -> None:
    (found,) = smoked(measured).failures
    assert sentence in found


def test_what_is_none() -> None:
    assert smoked().failures == ()
    # Two tokens that are nearly as likely may change places by rounding.
    assert smoked(replace(GOOD, same_text=False, smallest_gap=1e-5)).failures == ()
    # One loop among several texts.
    assert smoked(GOOD, GOOD, replace(GOOD, distinct=0.1)).failures == ()


def test_a_control_that_does_not_collapse() -> None:
    assert smoked(control=count(3, [0, 0, 0])).failures == ()
    (found,) = smoked(control=count(3, [1, 1, 1])).failures
    assert "a shuffled head reaches 2.000" in found


def test_a_shuffled_head_has_the_same_rows_in_another_order() -> None:
    head = torch.arange(20.0).view(10, 2)
    turned = shuffled_head({"lm_head.weight": head})["lm_head.weight"]
    assert not torch.equal(turned, head)
    assert torch.equal(turned.sort(dim=0).values, head)


def test_costs() -> None:
    found = smoked(replace(GOOD, alone_seconds=2.0, seconds=1.5))
    # 20 tokens after the first: 10 tokens/s alone; 3 drafts of 3 tokens in 0.1 s, verified in 0.8 s.
    assert found.alone_tokens_per_second == pytest.approx(10)
    assert found.draft_cost == pytest.approx(0.1 / 9 * 10)
    assert found.verify_cost == pytest.approx(0.8 / 3 * 10 - 1)
    assert "1.33 times" in as_lines(found, ())


def test_nan_is_below_any_threshold() -> None:
    found = smoked(replace(GOOD, counts=count(3, [])))
    assert len(below(found, 1.0, (0.0,))) == 2


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_the_doctor_runs_on_the_same_pair(pair: Path, form: str) -> None:
    """A random drafter of a random target: nothing is better, whatever is read."""
    command = ["doctor", str(pair / "drafter"), str(pair / "target"), "--device", "cpu"]
    command += ["--limit", "2", "--max-new-tokens", "8", "--depth", "2", "--format", form]
    result = CliRunner().invoke(cli, command, standalone_mode=False)
    assert result.exit_code in (0, 1), result.exception
    assert "residual" in result.stdout
    if form == "json":
        report = json.loads(result.stdout)
        jsonschema.Draft202012Validator(load("diagnosis")).validate(report)
        assert report["subject"]["layout"]
        assert report["readings"][0]["name"] == "configured"
