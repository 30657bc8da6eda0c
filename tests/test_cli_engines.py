"""`eagleconv engines`: the matrix is what the facts say, and what is known of engines is in it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from eagleconv.cli.main import cli
from eagleconv.engines import ENGINES, answer, find_engine, traits
from eagleconv.errors import EagleconvError, UsageError
from eagleconv.report.engines import PLAIN, VARIANTS, columns, matrix_text
from tests.drafters import make_spec
from tests.test_upgrade_cli import ROOT

SCHEMA = json.loads((ROOT / "schemas" / "engines.schema.json").read_text())
EVERY = tuple((engine, engine.version) for engine in ENGINES)


def run(*args: str) -> Result:
    """Run `eagleconv engines` with arguments."""
    return CliRunner().invoke(cli, ["engines", *args])


def printed(*args: str) -> str:
    """Return what it prints; it must succeed and say nothing else."""
    result = run(*args)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def matrix() -> dict[str, dict[str, str]]:
    """Return the cells of the printed markdown: variant -> column -> cell."""
    lines = [x.strip("| ").split(" | ") for x in printed("--format", "markdown").splitlines()]
    start = next(i for i, cells in enumerate(lines) if cells[0] == "variant")
    heads = lines[start][1:]
    rows = lines[start + 2 : start + 2 + len(VARIANTS)]
    return {name: dict(zip(heads, cells, strict=True)) for name, *cells in rows}


#: Section of the census of engines: variant -> cell of every column, in the order of the columns.
#: None: the census does not say, or says that it was not verified.
KNOWN: dict[str, tuple[str | None, ...]] = {
    "EAGLE-3": ("yes", "yes", "yes", *["yes?"] * 7),
    "fc_norm": ("yes", "yes", "yes", "yes?", "?", "no?", "no?", "WRONG?", "no?", "yes?"),
    "norm_output": ("yes", "yes", "yes", "yes?", *["WRONG?"] * 5, "yes?"),
    "norm_before_fc": ("yes", "yes", "yes", "yes?", "?", "?", None, "yes?", "no?", "?"),
    "norm_before_residual": (
        *("yes", "yes", "WRONG", "WRONG?", "WRONG?"),
        *("yes?", "WRONG?", "yes?", "WRONG?", "WRONG?"),
    ),
    "reduced vocabulary": ("yes", "yes", "yes", *["yes?"] * 6, "no?"),
    "full vocabulary": ("yes", "yes", "yes", "yes?", "yes?", "yes?", "no?", "yes?", "yes?", "yes?"),
    "own embedding": (
        *("yes", "yes", "WRONG", "WRONG?", "WRONG?"),
        *("yes?", "WRONG?", "yes?", "yes?", "yes?"),
    ),
    "several layers": (
        *("yes", "yes", "WRONG", "WRONG?", "no?"),
        *("no?", "no?", "yes?", "no?", "no?"),
    ),
    "two or four taps": ("yes", "yes", "yes", None, None, "no?", "no?", "no?", "no?", "yes?"),
    "MLA block": ("yes", "yes", "yes", "yes?", *["no?"] * 5, "yes?"),
    "MLA block, norm_before_fc": ("no", "no", "WRONG", *[None] * 7),
    "qwen3 block (q/k norms)": (
        *("yes", "yes", "no", "?", "yes?"),
        *("no?", "?", "no?", "no?", "no?"),
    ),
    "q, k, v and o biases": (
        *("yes", "yes", "WRONG", "yes?", "yes?"),
        *("no?", "?", "yes?", "?", "no?"),
    ),
    "q, k and v biases": ("WRONG", "WRONG", "WRONG", *[None] * 7),
    "a bias of fc": (
        *("WRONG", "WRONG", "yes", "yes?", "WRONG?"),
        *("no?", "?", "no?", "no?", "no?"),
    ),
    "last state only, no fc": ("yes", "no", "yes", *["?"] * 7),
    "windows that differ by layer": ("no", None, "WRONG", *[None] * 7),
    "P-EAGLE (parallel drafting)": ("yes", "yes (V1)", "WRONG", *["no?"] * 7),
}


@pytest.mark.parametrize("variant", KNOWN)
def test_what_is_known_is_in_the_matrix(variant: str) -> None:
    row = matrix()[variant]
    assert len(row) == len(KNOWN[variant])
    for (column, cell), known in zip(row.items(), KNOWN[variant], strict=True):
        assert known in (None, cell.replace("*", "")), column


def test_every_column_is_an_engine_with_its_version_and_runner() -> None:
    heads = [*matrix()["EAGLE-3"]]
    assert heads[:3] == ["vllm 0.32.0 V1", "vllm 0.32.0 V2", "sglang 0.5.23"]
    assert len(heads) == sum(len(engine.runners) for engine in ENGINES)


def test_the_matrix_is_computed_from_the_facts() -> None:
    """An engine without facts runs everything; one more fact changes the rows it is about."""
    engine, version = find_engine("sglang")
    bare = dataclasses.replace(engine, facts=())
    assert {*columns([(bare, version)])[0].cells()} == {"yes"}
    fact = next(f for f in engine.facts if f.when == {"residual": ("normed",)})
    one = dataclasses.replace(engine, facts=(fact,))
    cells = dict(zip(VARIANTS, columns([(one, version)])[0].cells(), strict=True))
    assert [name for name, cell in cells.items() if cell != "yes"] == ["norm_before_residual"]
    lines = matrix_text([(one, version)]).splitlines()
    assert ["norm_before_residual", "WRONG"] in [line.split() for line in lines]


def test_rows_are_made_of_the_traits_there_are() -> None:
    known = traits(make_spec())
    assert PLAIN.keys() == known.keys()
    for changes in VARIANTS.values():
        assert changes.keys() <= known.keys()
    named = {trait for changes in VARIANTS.values() for trait in changes}
    asked = {trait for engine in ENGINES for fact in engine.facts for trait in fact.when}
    rare = {"taps_last", "taps_embedding", "taps_as_wide", "first_tap", "target_type"}
    assert asked - named - rare == {"mla_full_rank_q", "hidden_act"}


def test_text_and_markdown_agree() -> None:
    text = printed()
    for name, row in matrix().items():
        line = next(x for x in text.splitlines() if x.startswith(f"{name}  "))
        assert "".join(line.removeprefix(name).split()) == "".join(
            "".join(cell.replace("*", "") for cell in row.values()).split()
        )


# One engine.


@pytest.mark.parametrize("name", [engine.name for engine in ENGINES])
def test_the_page_of_an_engine_has_every_fact_with_its_source(name: str) -> None:
    engine, _ = find_engine(name)
    text, markdown = printed(name), printed(name, "--format", "markdown")
    for fact in engine.facts:
        for page in (text, markdown):
            assert fact.reason in page
            assert fact.source in page
            assert fact.versions in page
    for note in engine.notes:
        assert note.text in text
        assert note.text in markdown


def test_the_page_of_a_version_has_the_facts_of_that_version() -> None:
    old, new = printed("vllm==0.21"), printed("vllm==0.32")
    assert old.startswith("vllm 0.21.0\n")
    assert "norm_output needs 0.22" in old
    assert "norm_output needs 0.22" not in new
    assert "norm_output needs 0.22" in printed("vllm")
    assert "eagle3_target_supported" not in old
    assert "The target's model_type must contain" not in old
    assert "The target's model_type must contain" in printed("vllm==0.16")


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_the_page_of_a_version_nobody_read_says_so(form: str) -> None:
    page = printed("vllm==0.99", "--format", form)
    assert "vllm 0.99.0 was not read; the facts are those of 0.33.0" in page
    assert "was not read" not in printed("vllm==0.32", "--format", form)


# JSON.


@pytest.mark.parametrize("args", [(), ("vllm",), ("vllm==0.21",), ("atom",)])
def test_json_is_valid_and_says_what_the_api_says(args: tuple[str, ...]) -> None:
    report = json.loads(printed(*args, "--format", "json"))
    jsonschema.validate(report, SCHEMA)
    for variant in report["variants"]:
        for found in variant["answers"]:
            engine, _ = find_engine(found["engine"])
            again = answer(
                engine,
                {**PLAIN, **VARIANTS[variant["name"]]},
                found["version"],
                found["runner"] or None,
            )
            assert (found["verdict"], found["notes"]) == (again.verdict, [*again.notes])


def test_json_of_a_version_has_its_facts_only() -> None:
    def reasons(name: str) -> set[str]:
        report = json.loads(printed(name, "--format", "json"))
        return {fact["reason"] for fact in report["engines"][0]["facts"]}

    assert reasons("vllm==0.32") < reasons("vllm")
    assert reasons("vllm==0.21") - reasons("vllm==0.32")


# The contract of the command line.


@pytest.mark.parametrize("name", ["tgi", "vllm>=0.30", "vllm==latest", "vllm==0.32.*", "=="])
def test_what_is_no_engine_is_a_usage_error_of_one_sentence(name: str) -> None:
    result = run(name)
    assert isinstance(result.exception, UsageError)
    assert result.exception.exit_code == 2
    assert "\n" not in result.exception.message
    assert result.exception.hint
    assert result.stdout == ""


def test_a_file_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "engines.md"
    assert printed("--format", "markdown", "-o", str(path)) == ""
    assert path.read_text() == printed("--format", "markdown")
    again = run("-o", str(path))
    assert isinstance(again.exception, EagleconvError)


def test_the_page_in_the_documentation_is_what_is_printed() -> None:
    page = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    assert page == printed("--format", "markdown"), "run `python docs/build.py`"


def test_answers_of_the_public_names_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a report depends on the terminal."""
    before: Any = printed()
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    assert printed() == before
