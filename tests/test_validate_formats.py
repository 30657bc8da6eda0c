"""Every format says all there is to say, fits what is published of it, and survives any name."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
import xmlschema
from click.testing import CliRunner
from markdown_it import MarkdownIt

from eagleconv.checkpoint.schema import load
from eagleconv.cli.main import cli
from eagleconv.report.findings_github import data, property_value
from eagleconv.report.formats import FORMATS
from eagleconv.report.place import key_lines
from eagleconv.report.validation import Validation
from eagleconv.rules.finding import Finding, Location, Validated
from eagleconv.rules.outcome import FAIL_ON, Checked, FailOn
from tests.test_upgrade_cli import ROOT
from tests.validations import (
    CONFIG,
    ENGINES,
    IDS,
    NOWHERE,
    OPEN,
    RULES,
    SKIPPED,
    TENSOR,
    run,
    standing_here,
    unreadable,
    validated,
)

__all__ = ["standing_here"]
pytestmark = pytest.mark.usefixtures("here")

DATA = Path(__file__).parent / "data"
KNOWN = replace(TENSOR, accepted=True)
FULL = validated("ckpt", IDS, OPEN, NOWHERE, KNOWN, engines=ENGINES)
HOSTILE = "a\x1b[2J`x`|\n::error::forged\r%0A <!-- ]]> --> \u202e\udcff & \\| [l](u)\ufffe"


def rendered(form: str, *results: Validated, fail_on: FailOn = "error", color: bool = False) -> str:
    checked = tuple(Checked(r, fail_on) for r in results or (FULL,))
    return FORMATS[form](Validation(checked, RULES, "accepted.json", color))


# Published schemas.


def test_the_published_schemas_are_unchanged() -> None:
    said = dict(
        reversed(line.split("  "))
        for line in (DATA / "README.md").read_text().splitlines()
        if re.match(r"[0-9a-f]{64}  ", line)
    )
    found = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in DATA.glob("*.[jx]s*")}
    assert said == found
    assert len(found) == 2


EVERYTHING = (
    FULL,
    validated("org/name", OPEN, revision="0" * 40),
    unreadable(),
    validated("none", checks_run=(), skipped=SKIPPED),
    validated("clean"),
)


@pytest.fixture(scope="module")
def sarif_schema() -> Any:
    schema = json.loads((DATA / "sarif-2.1.0-rtm.5.json").read_text())
    checker = jsonschema.Draft4Validator.FORMAT_CHECKER
    return jsonschema.Draft4Validator(schema, format_checker=checker)


@pytest.mark.parametrize("results", [(FULL,), EVERYTHING, (unreadable(),)], ids=len)
def test_sarif_fits_the_published_schema(results: tuple[Validated, ...], sarif_schema: Any) -> None:
    log = json.loads(rendered("sarif", *results))
    assert [e.message for e in sarif_schema.iter_errors(log)] == []
    log["runs"][0]["results"].append({"ruleId": "ECC003"})
    assert [e.message for e in sarif_schema.iter_errors(log)] == [
        "'message' is a required property"
    ]


@pytest.mark.parametrize("results", [(FULL,), EVERYTHING, (unreadable(),)], ids=len)
def test_junit_fits_the_published_schema(results: tuple[Validated, ...]) -> None:
    schema = xmlschema.XMLSchema(str(DATA / "junit-10.xsd"))
    text = rendered("junit", *results)
    schema.validate(text)
    with pytest.raises(xmlschema.XMLSchemaValidationError):
        schema.validate(text.replace(" errors=", " mistakes="))


@pytest.mark.parametrize("results", [(FULL,), EVERYTHING, (unreadable(),)], ids=len)
def test_json_fits_our_schema(results: tuple[Validated, ...]) -> None:
    report = json.loads(rendered("json", *results))
    validator = jsonschema.Draft202012Validator(load("report"))
    assert [e.message for e in validator.iter_errors(report)] == []
    assert ("reports" in report) is (len(results) > 1)
    del report.get("reports", [report])[0]["summary"]["errors"]
    assert [e.message for e in validator.iter_errors(report)] == ["'errors' is a required property"]


# What each says.


def test_text_is_aligned_and_ends_with_the_sum() -> None:
    assert rendered("text") == (
        "ckpt\n"
        "  variant  EAGLE 3 with its <own> head\n"
        "  layout   SpecForge\n"
        "  producer SpecForge or SGLang\n"
        "  engine   vllm 0.32.0 V1  runs as trained\n"
        "  engine   vllm 0.32.0 V2  computes something else\n"
        "                           it reads | ids (a.py:3)\n"
        "  error    ECC003 norm-tensors-without-flag: the ids are one off: 100% of 3, as read: 1, 14, 26\n"
        "           at ckpt/config.json:5 eagle_config.eagle_aux_hidden_state_layer_ids for vllm 0.32.0\n"
        "  warning  ECC018 feedback-open: norm_output is true, which two trainers mean differently\n"
        "           at ckpt/config.json:3 norm_output\n"
        "           hint: say which with --norm-output-meaning\n"
        "  info     ECC018 feedback-open: nothing else is known\n"
        "  error    accepted: ECT001 unknown-tensor: tensor fc_norm.3.weight has no place\n"
        "           at ckpt/model.safetensors fc_norm.3.weight\n"
        "           hint: remove it\n"
        "  skipped  ECE001: no engine was asked for: give --engine\n"
        "  skipped  ECP001: there is no target: give --target\n"
        "1 error, 1 warning, 1 info, 1 accepted; 4 checks run, 2 skipped\n"
    )


def test_text_of_many_ends_with_a_table() -> None:
    assert rendered("text", FULL, unreadable(), validated("clean")).endswith(
        "\n\n"
        "checkpoint  errors  warnings  infos  accepted  run  skipped\n"
        "ckpt             1         1      1         1    4        2  failed\n"
        "gone             0         0      0         0    0        0  not checked\n"
        "clean            0         0      0         0    4        2  passed\n"
        "1 error, 1 warning, 1 info, 1 accepted; 8 checks run, 4 skipped\n"
    )
    assert "error    not checked: gone: no such directory\n           hint: give another" in (
        rendered("text", unreadable())
    )


def test_colour_changes_nothing_but_colour() -> None:
    colored = rendered("text", *EVERYTHING, color=True)
    assert "\x1b[31merror" in colored
    assert re.sub(r"\x1b\[\d*m", "", colored) == rendered("text", *EVERYTHING)


@pytest.mark.parametrize(
    ("variables", "output", "expected"),
    [
        ({}, (), False),  # no terminal
        ({"FORCE_COLOR": "1"}, (), True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, (), False),
        ({"FORCE_COLOR": "1", "NO_COLOR": ""}, (), True),
        ({"FORCE_COLOR": "1"}, ("-o", "out.txt"), False),
    ],
)
def test_colour_is_for_terminals_unless_asked_for(
    variables: dict[str, str],
    output: tuple[str, ...],
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # CliRunner strips colour, as click does; the report goes to stdout untouched.
    result, _ = run(monkeypatch, [FULL], "ckpt", *output, env=variables)
    said = result.stdout + (Path("out.txt").read_text() if output else "")
    assert ("\x1b[" in said) is expected


def test_a_line_is_found_for_every_key() -> None:
    assert key_lines(CONFIG) == {
        "model_type": 2,
        "norm_output": 3,
        "eagle_config": 4,
        "eagle_config.eagle_aux_hidden_state_layer_ids": 5,
        "rope_theta": 9,
    }
    assert key_lines('{"a": "x: {\\"b\\": [", "c": [{"d": 1}, {}],\n"e": {}}') == {
        "a": 1,
        "c": 1,
        "c.d": 1,
        "e": 2,
    }


def test_a_key_that_is_absent_is_at_the_object_that_lacks_it() -> None:
    absent = replace(OPEN, location=Location("config.json", key="eagle_config.norm_output"))
    assert "at ckpt/config.json:4 eagle_config.norm_output" in rendered(
        "text", validated("ckpt", absent)
    )
    absent = replace(OPEN, location=Location("config.json", key="fc_norm"))
    assert "at ckpt/config.json fc_norm" in rendered("text", validated("ckpt", absent))


def result_of(log: dict[str, Any], code: str) -> dict[str, Any]:
    found: dict[str, Any] = next(r for r in log["runs"][0]["results"] if r["ruleId"] == code)
    return found


def test_sarif_says_where_and_what_to_do() -> None:
    log = json.loads(rendered("sarif"))
    ids = result_of(log, "ECC003")
    assert ids["level"] == "error"
    assert ids["message"]["text"].endswith("(for vllm 0.32.0)")
    (location,) = ids["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "ckpt/config.json"},
        "region": {"startLine": 5},
    }
    (logical,) = result_of(log, "ECT001")["locations"][0]["logicalLocations"]
    assert logical == {"fullyQualifiedName": "fc_norm.3.weight", "kind": "tensor"}
    (engines,) = log["runs"][0]["properties"]["engines"].values()
    assert [e["verdict"] for e in engines] == ["runs as trained", "computes something else"]


def test_sarif_describes_every_rule() -> None:
    log = json.loads(rendered("sarif"))
    described = log["runs"][0]["tool"]["driver"]["rules"]
    assert [d["id"] for d in described] == [r.code for r in RULES]
    for d in described:
        assert d["helpUri"].endswith(f"/docs/rules/{d['id']}.md")
        assert d["fullDescription"]["text"].startswith(d["shortDescription"]["text"])
        assert d["help"]["markdown"].startswith(f"# {d['name']} ({d['id']})\n")
    assert [d["defaultConfiguration"]["level"] for d in described[:2]] == ["error", "warning"]
    for r in log["runs"][0]["results"]:
        assert described[r["ruleIndex"]]["id"] == r["ruleId"]


def test_sarif_fingerprints_are_stable_and_tell_findings_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prints(*results: Validated) -> list[str]:
        found = json.loads(rendered("sarif", *results))["runs"][0]["results"]
        assert all(len({*r["partialFingerprints"].values()}) == 1 for r in found)
        return [r["partialFingerprints"]["eagleconv/v1"] for r in found]

    before = prints(FULL)
    assert len({*before}) == 4
    assert len({*prints(validated("ckpt", IDS, replace(IDS, engine="sglang 0.5.23")))}) == 2
    # Another place, another line, accepted or not: the same finding.
    (tmp_path / "ckpt" / "config.json").write_text("\n\n" + CONFIG)
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    moved = [replace(f, accepted=False) for f in FULL.findings]
    assert prints(replace(FULL, source="../ckpt", findings=tuple(moved))) == before


def test_sarif_is_honest_about_what_did_not_run() -> None:
    (invocation,) = json.loads(rendered("sarif", *EVERYTHING))["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    notes = invocation["toolExecutionNotifications"]
    errors = [n["message"]["text"] for n in notes if n["level"] == "error"]
    assert errors == [
        "gone: gone: no such directory",
        "none: nothing was checked: all 2 selected checks were skipped",
    ]
    skipped = [n["associatedRule"] for n in notes if n["level"] == "note"]
    assert skipped[:2] == [{"id": "ECE001", "index": 4}, {"id": "ECP001", "index": 5}]
    (clean,) = json.loads(rendered("sarif", validated("clean")))["runs"][0]["invocations"]
    assert clean["executionSuccessful"] is True


def test_sarif_suppresses_what_is_accepted() -> None:
    log = json.loads(rendered("sarif"))
    assert result_of(log, "ECT001")["suppressions"] == [
        {"kind": "external", "status": "accepted", "justification": "accepted by accepted.json"}
    ]
    assert "suppressions" not in result_of(log, "ECC003")


def test_every_sarif_result_has_the_location_that_code_scanning_demands() -> None:
    """One result without file or line, or with the scheme of another host, fails the upload."""
    log = json.loads(rendered("sarif", *EVERYTHING, validated("a b/ü", OPEN)))
    uris = set()
    for result in log["runs"][0]["results"]:
        (location,) = result["locations"]
        assert location["physicalLocation"]["region"]["startLine"] >= 1
        uris.add(location["physicalLocation"]["artifactLocation"]["uri"])
    assert uris == {
        "ckpt/config.json",
        "ckpt/model.safetensors",
        "org/name/config.json",
        "a%20b/%C3%BC/config.json",
    }


def test_paths_are_relative_to_the_root_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path.parent))
    assert f'"uri": "{tmp_path.name}/ckpt/config.json"' in rendered("sarif")
    assert f"::error file={tmp_path.name}/ckpt/config.json,line=5," in rendered("github")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path)[:-1])
    assert '"uri": "ckpt/config.json"' in rendered("sarif")
    # Outside of both, a path is absolute.
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.delenv("GITHUB_WORKSPACE")
    outside = rendered("sarif", replace(FULL, source="../ckpt"))
    assert f'"uri": "file://{tmp_path}/ckpt/config.json"' in outside


def test_a_training_output_is_followed_into_its_model(tmp_path: Path) -> None:
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "config.json").write_text(CONFIG)
    assert "at run/model/config.json:3 norm_output" in rendered("text", validated("run", OPEN))


def test_junit_has_a_case_for_every_rule() -> None:
    (suite,) = ElementTree.fromstring(rendered("junit"))
    assert {k: suite.get(k) for k in ("name", "tests", "failures", "errors", "skipped")} == {
        "name": "ckpt",
        "tests": "6",
        "failures": "1",
        "errors": "0",
        "skipped": "2",
    }
    cases = {str(c.get("name")).split()[0]: c for c in suite.iter("testcase")}
    (failure,) = cases["ECC003"]
    assert failure.tag == "failure"
    assert failure.get("type") == "error"
    assert failure.get("message") == IDS.message
    assert "config.json:5" in (failure.text or "")
    # A warning does not fail, an accepted error neither; both are told.
    for code, said in (("ECC018", "warning: norm_output"), ("ECT001", "accepted error: tensor")):
        (output,) = cases[code]
        assert output.tag == "system-out"
        assert said in (output.text or "")
    assert len(cases["ECV002"]) == 0
    assert cases["ECV002"].get("name") == "ECV002 map-out-of-range"
    for skipped in SKIPPED:
        (element,) = cases[skipped.code]
        assert element.tag == "skipped"
        assert element.get("message") == skipped.reason


def test_junit_fails_what_fails_the_run() -> None:
    def failures(fail_on: FailOn) -> list[str]:
        root = ElementTree.fromstring(rendered("junit", fail_on=fail_on))
        return [
            str(c.get("name"))[:6] for c in root.iter("testcase") if c.find("failure") is not None
        ]

    assert failures("error") == ["ECC003"]
    assert failures("warning") == ["ECC003", "ECC018"]
    assert failures("never") == []
    text = rendered("junit", fail_on="info")
    assert 'differently (and 1 more)"' in text


def test_junit_calls_what_could_not_be_read_an_error() -> None:
    (suite,) = ElementTree.fromstring(rendered("junit", unreadable()))
    (error,) = suite.iter("error")
    assert error.get("message") == "gone: no such directory"
    assert suite.get("errors") == suite.get("tests") == "1"


def command(line: str) -> tuple[str, dict[str, str], str]:
    """Read a workflow command as the runner does."""
    match = re.fullmatch(r"::(\w+) ([^:]*)::(.*)", line)
    assert match is not None, line

    def unescaped(text: str) -> str:
        for escape, char in (
            ("%0D", "\r"),
            ("%0A", "\n"),
            ("%3A", ":"),
            ("%2C", ","),
            ("%25", "%"),
        ):
            text = text.replace(escape, char)
        return text

    properties = dict(part.split("=", 1) for part in match[2].split(","))
    return match[1], {k: unescaped(v) for k, v in properties.items()}, unescaped(match[3])


def test_github_commands_say_what_the_findings_say() -> None:
    lines = rendered("github").splitlines()
    found = [command(line) for line in lines if line.startswith("::")]
    assert found[0] == (
        "error",
        {"file": "ckpt/config.json", "line": "5", "title": "ECC003 norm-tensors-without-flag"},
        f"{IDS.message} (for vllm 0.32.0)",
    )
    assert found[1][0] == "warning"
    assert found[1][2] == f"{OPEN.message}\n{OPEN.hint}"
    assert [f[0] for f in found[2:]] == ["notice", "notice"]
    assert found[3][1]["title"] == "ECT001 unknown-tensor (accepted)"
    assert lines[-1] == "1 error, 1 warning, 1 info, 1 accepted; 4 checks run, 2 skipped"
    assert "ckpt: skipped ECP001: there is no target: give --target" in lines


def test_github_escapes_what_the_runner_reads() -> None:
    assert data("50%\r\n: a, b") == "50%25%0D%0A: a, b"
    assert property_value("a:b,c%\n") == "a%3Ab%2Cc%25%0A"
    odd = validated("a,b:c%41", OPEN)
    (name, properties, _) = command(rendered("github", odd).splitlines()[0])
    assert name == "warning"
    assert properties["file"] == "a,b:c%41/config.json"


def test_github_shows_errors_of_every_checkpoint_first() -> None:
    text = rendered("github", validated("a", OPEN), validated("b", TENSOR), unreadable())
    kinds = [command(line)[0] for line in text.splitlines() if line.startswith("::")]
    assert kinds == ["error", "error", "warning"]


def cells(markdown: str) -> list[list[str]]:
    """Return the texts of all table cells of a rendered markdown."""
    html = MarkdownIt("commonmark").enable("table").render(markdown)
    rows = re.findall(r"<tr>\n(.*?)</tr>", html, re.DOTALL)
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows if "<td" in row]


def test_markdown_has_tables_and_links_to_the_pages() -> None:
    text = rendered("markdown", *EVERYTHING)
    rows = cells(text)
    assert ["vllm 0.32.0 V2", "computes something else", "it reads | ids (a.py:3)"] in rows
    error = next(row for row in rows if row[0] == "❌ error")
    assert error[1].endswith('/docs/rules/ECC003.md">ECC003 norm-tensors-without-flag</a>')
    assert error[3].startswith("<code>ckpt/config.json:5 ")
    assert [row[0] for row in rows if "no place" in row[2]] == ["accepted"]
    assert "EAGLE 3 with its &lt;own&gt; head" in MarkdownIt("commonmark").render(text)
    assert "<details><summary>2 checks skipped</summary>" in text
    assert "### `gone`: not checked" in text
    assert "### `clean`: no findings" in text


# Names of strangers.


@pytest.mark.parametrize("form", FORMATS)
def test_no_name_breaks_out_of_a_format(form: str, sarif_schema: Any) -> None:
    at = Location("config.json", tensor=HOSTILE, key=HOSTILE)
    finding = Finding("ECT001", "unknown-tensor", "error", HOSTILE, at, HOSTILE, HOSTILE)
    result = validated(f"dir {HOSTILE}", finding, variant=HOSTILE, engines=ENGINES)
    text = rendered(form, result, unreadable(HOSTILE), validated("clean"))
    text.encode()
    if form in ("json", "sarif"):
        log = json.loads(text)
        if form == "sarif":
            assert not list(sarif_schema.iter_errors(log))
            assert result_of(log, "ECT001")["message"]["text"].startswith(HOSTILE)
        return
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e\ud800-\udfff\ufffe]", text)
    if form == "junit":
        xmlschema.XMLSchema(str(DATA / "junit-10.xsd")).validate(text)
    elif form == "markdown":
        assert {len(row) for row in cells(text)} == {3, 4, 8}
        assert "<!--" not in MarkdownIt("commonmark", {"html": True}).enable("table").render(
            text
        ).replace("&lt;!--", "")
    else:
        forged = [line for line in text.splitlines() if line.startswith("::error::")]
        assert forged == []


# Exit codes.

NOTE = validated("ckpt", NOWHERE)
WARNED = validated("ckpt", OPEN)
FAILED = validated("ckpt", TENSOR)
ACCEPTED = validated("ckpt", KNOWN)
NOTHING = validated("ckpt", checks_run=())


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("results", "codes"),
    [
        ((validated("ckpt"),), (0, 0, 0, 0)),
        ((NOTE,), (0, 0, 1, 0)),
        ((WARNED,), (0, 1, 1, 0)),
        ((FAILED,), (1, 1, 1, 0)),
        ((ACCEPTED,), (0, 0, 0, 0)),
        ((validated("ckpt"), replace(FAILED, source="other")), (1, 1, 1, 0)),
        ((unreadable("ckpt"),), (3, 3, 3, 3)),
        ((NOTHING,), (3, 3, 3, 3)),
        ((unreadable("ckpt"), replace(FAILED, source="other")), (3, 3, 3, 3)),
    ],
)
def test_the_exit_code_is_the_same_for_every_format(
    form: str,
    results: tuple[Validated, ...],
    codes: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources = [r.source for r in results]
    for fail_on, expected in zip(FAIL_ON, codes, strict=True):
        result, _ = run(monkeypatch, results, *sources, "--format", form, "--fail-on", fail_on)
        assert result.exit_code == expected, (fail_on, result.output)
    assert run(monkeypatch, results, *sources, "--format", form)[0].exit_code == codes[0]


def test_both_reasons_are_said_where_there_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    results = (unreadable("ckpt"), replace(FAILED, source="other"))
    result, _ = run(monkeypatch, results, "ckpt", "other")
    assert result.stderr.splitlines() == [
        "error: ckpt: no such directory",
        "hint: give another",
        "exit 3: 1 of 2 sources could not be checked; 1 failed besides, which alone would be exit 1",
    ]
    nothing, _ = run(monkeypatch, [NOTHING], "ckpt", "--select", "ECP")
    assert nothing.stderr == (
        "error: ckpt: nothing was checked: all 2 selected checks were skipped\n"
    )


# The rest of the command line.


def test_a_file_stands_for_its_checkpoint_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, fake = run(
        monkeypatch, [], "ckpt/config.json", "ckpt/model.safetensors", "ckpt", "./ckpt/", "org/name"
    )
    assert [*fake.calls] == ["ckpt", "org/name"]
    monkeypatch.chdir("ckpt")
    _, fake = run(monkeypatch, [], "config.json")
    assert [*fake.calls] == ["."]


def test_one_run_writes_many_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = [x for f in FORMATS for x in ("--report", f"{f}=out.{f}")]
    result, fake = run(monkeypatch, [FULL], "ckpt", *reports, env={"FORCE_COLOR": "1"})
    assert result.exit_code == 1
    assert len(fake.calls) == 1
    for form in FORMATS:
        text = (tmp_path / f"out.{form}").read_text()
        assert text == FORMATS[form](Validation((Checked(FULL),), RULES))


@pytest.mark.parametrize("value", ["sarif", "sarif=", "sarf=x", "=x"])
def test_a_report_needs_a_format_and_a_file(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result, fake = run(monkeypatch, [], "ckpt", "--report", value)
    assert getattr(result.exception, "exit_code", None) == 2
    assert fake.calls == {}


def test_selectors_are_codes_beginnings_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    _, fake = run(
        monkeypatch,
        [],
        "ckpt",
        "--select",
        "ecv, unknown-tensor",
        "--select",
        "ECC003",
        "--ignore",
        "ECC",
    )
    options = fake.calls["ckpt"]
    assert options["select"] == ("ECC003", "ECT001", "ECV002")
    assert options["ignore"] == ("ECC003", "ECC018")


@pytest.mark.parametrize(
    ("selector", "hint"),
    [
        ("unknown-tensr", "did you mean unknown-tensor?"),
        ("ECC03", "did you mean ECC003?"),
        ("EC", "did you mean EC"),
        ("ECX", "did you mean EC"),
        ("%%%", "`eagleconv rules` lists them all"),
    ],
)
def test_an_unknown_selector_names_the_closest(
    selector: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for option in ("--select", "--ignore"):
        result, fake = run(monkeypatch, [], "ckpt", option, selector)
        assert getattr(result.exception, "exit_code", None) == 2
        assert str(result.exception) == f"{selector!r} is no rule"
        assert str(getattr(result.exception, "hint", "")).startswith(hint)
        assert fake.calls == {}


def test_every_fixture_gives_reports_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sarif_schema: Any
) -> None:
    """The real rules, on everything a trainer writes and everything that is broken."""
    monkeypatch.chdir(ROOT)
    sources = sorted(p for p in (ROOT / "fixtures").glob("*valid/*") if p.is_dir())
    files = {form: tmp_path / form for form in ("json", "sarif", "junit")}
    reports = [x for form, path in files.items() for x in ("--report", f"{form}={path}")]
    args = [str(s.relative_to(ROOT)) for s in sources]
    result = CliRunner().invoke(cli, ["validate", *args, "--engine", "vllm", *reports])
    assert result.exit_code == 3, result.output  # some are no drafters
    found = {form: path.read_text() for form, path in files.items()}
    assert list(sarif_schema.iter_errors(json.loads(found["sarif"]))) == []
    report = json.loads(found["json"])
    assert list(jsonschema.Draft202012Validator(load("report")).iter_errors(report)) == []
    assert len(report["reports"]) == len(sources) > 90
    xmlschema.XMLSchema(str(DATA / "junit-10.xsd")).validate(found["junit"])
