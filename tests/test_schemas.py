"""The schemas are schemas for people, and every file we read or write fits them."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from eagleconv.checkpoint.schema import load
from eagleconv.cli.main import cli
from eagleconv.drafter.facts import AuxLayers
from eagleconv.drafter.layouts import CANONICAL, LAYOUTS
from eagleconv.drafter.write import write_config
from eagleconv.errors import EagleconvError
from tests.drafters import make_spec
from tests.test_upgrade_cli import REAL, ROOT

TARGET = ROOT / "fixtures" / "targets" / "smollm2-135m-instruct"
NAMES = sorted(p.name.removesuffix(".schema.json") for p in (ROOT / "schemas").glob("*.json"))
CONFIGS = ("eagle3", "eagle3.1", "speculators")
FIXTURES = sorted(p.parent for p in (ROOT / "fixtures").glob("valid/*/expect.json"))


def misfits(name: str, instance: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(load(name))
    return [f"{e.json_path}: {e.message}" for e in validator.iter_errors(instance)]


def upgraded(source: Path, out: Path, *flags: str) -> Path:
    result = CliRunner().invoke(
        cli, ["upgrade", str(source), "-o", str(out), *flags], standalone_mode=False
    )
    assert result.exception is None, result.exception
    return out


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the real drafter, upgraded for its real target."""
    return upgraded(REAL, tmp_path_factory.mktemp("real") / "out", "--target", str(TARGET))


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return every valid fixture, upgraded."""
    found = {}
    for fixture in FIXTURES:
        expect = json.loads((fixture / "expect.json").read_text())
        out = tmp_path_factory.mktemp(fixture.name) / "out"
        found[fixture.name] = upgraded(fixture, out, *expect["upgrade"]["flags"])
    return found


@pytest.fixture(scope="module")
def config(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "config.json").read_text())
    return found


# What the schemas say.


def properties(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every property of a schema with its dotted path, those of `$ref`s once."""
    for key, value in schema.get("properties", {}).items():
        yield f"{path}{key}", value
        yield from properties(value, f"{path}{key}.")
    items = schema.get("items")
    if isinstance(items, dict):
        yield from properties(items, path)
    for key, value in schema.get("$defs", {}).items():
        yield from properties(value, f"{key}.")


@pytest.mark.parametrize("name", NAMES)
def test_schema_is_a_schema(name: str) -> None:
    schema = load(name)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", NAMES)
def test_every_property_says_what_it_is(name: str) -> None:
    silent = [path for path, value in properties(load(name)) if not value.get("description")]
    assert not silent


@pytest.mark.parametrize("name", CONFIGS)
def test_every_config_key_says_what_absence_means_and_who_says_so(name: str) -> None:
    form = re.compile(r"[A-Z_].+\. Absent: .+\. Source: [^.\s].*\S\.$")
    wrong = [p for p, value in properties(load(name)) if not form.match(value["description"])]
    assert not wrong


@pytest.mark.parametrize("name", CONFIGS)
def test_unknown_keys_are_legal(name: str) -> None:
    assert load(name)["additionalProperties"] is True


def test_every_key_of_every_layout_is_in_its_schema() -> None:
    known = {name: {path for path, _ in properties(load(name))} for name in CONFIGS}
    for layout in LAYOUTS:
        name = "speculators" if "transformer_layer_config" in layout.own_keys else "eagle3"
        read = {path for path, _ in (*layout.keys, *layout.read_also)}
        assert read | {*layout.fixed} | {*layout.own_keys} <= known[name], layout.name
    assert {path for path, _ in CANONICAL.keys} <= known["eagle3.1"]


def test_a_schema_that_is_not_there_is_named() -> None:
    with pytest.raises(EagleconvError, match="no schema 'eagle4'"):
        load("eagle4")


# What we read.


def test_the_real_drafter_fits_eagle3() -> None:
    assert misfits("eagle3", json.loads((REAL / "config.json").read_text())) == []


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda p: p.name)
def test_every_source_fits_the_schema_of_its_form(fixture: Path) -> None:
    # Automodel's raw run directory keeps its config one level down.
    path = next(iter(sorted(fixture.rglob("config.json"))))
    config = json.loads(path.read_text())
    forms = ("speculators", "eagle3")
    fits, other = forms if "speculators_model_type" in config else reversed(forms)
    assert misfits(fits, config) == []
    assert misfits(other, config) != []


# What we write.


def test_the_upgraded_real_drafter_fits_eagle31(config: dict[str, Any]) -> None:
    assert misfits("eagle3.1", config) == []
    assert misfits("eagle3", config) == []
    assert misfits("eagle3.1", json.loads((REAL / "config.json").read_text())) != []


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda p: p.name)
def test_every_upgrade_fits_eagle31(fixture: Path, outputs: dict[str, Path]) -> None:
    out = outputs[fixture.name]
    assert misfits("eagle3.1", json.loads((out / "config.json").read_text())) == []
    assert misfits("eagleconv", json.loads((out / "eagleconv.json").read_text())) == []


REQUIRED = [
    *load("eagle3.1")["required"],
    *(f"eagle_config.{k}" for k in load("eagle3.1")["properties"]["eagle_config"]["required"]),
    *(f"rope_parameters.{k}" for k in ("rope_theta", "rope_type")),
]


def holder(config: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    *parents, key = path.split(".")
    for parent in parents:
        config = config[parent]
    return config, key


@pytest.mark.parametrize("path", REQUIRED)
def test_no_fact_may_be_missing_or_of_another_type(path: str, config: dict[str, Any]) -> None:
    for wrong in (None, [[]], "absent"):
        broken = copy.deepcopy(config)
        inside, key = holder(broken, path)
        if wrong == "absent":
            del inside[key]
        elif wrong is None and path == "draft_vocab_size":
            continue  # null is a fact there: the head is borrowed
        else:
            inside[key] = wrong
        assert misfits("eagle3.1", broken), (path, wrong)


def test_what_the_upgrade_always_writes_is_what_the_schema_requires(
    config: dict[str, Any], outputs: dict[str, Path]
) -> None:
    """Only keys that some drafter goes without are optional."""
    written = {path for path, _ in CANONICAL.keys if "." not in path}
    always = written & config.keys()
    for out in outputs.values():
        always &= json.loads((out / "config.json").read_text()).keys()
    required = {*load("eagle3.1")["required"]} - {"architectures", "model_type", "eagle_config"}
    assert always & one_state_config().keys() == required


def one_state_config() -> dict[str, Any]:
    """Return the config of a head fed the last hidden state, which has no taps to count."""
    return write_config(make_spec(aux=AuxLayers(0, None, "last")), CANONICAL, {})


def test_a_head_fed_the_last_state_fits_without_taps_only() -> None:
    config = one_state_config()
    assert config["eagle_config"]["use_aux_hidden_state"] is False
    assert misfits("eagle3.1", config) == []
    assert misfits("eagle3.1", config | {"num_aux_hidden_states": 3})


CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "both input norms": {"fc_norm": True, "norm_before_fc": True},
    "norm_before_fc in one home only": {"norm_before_fc": True},
    "no count of taps": {"num_aux_hidden_states": ...},
    "nested ids alone": {"eagle_aux_hidden_state_layer_ids": ...},
    "an id twice": {"eagle_aux_hidden_state_layer_ids": [2, 2, 27]},
    "a negative id": {"eagle_aux_hidden_state_layer_ids": [-1, 15, 27]},
    "a tied head": {"tie_word_embeddings": True},
    "a window without its size": {"layer_types": ["sliding_attention"]},
    "a class for another block": {"architectures": ["Eagle3Qwen3ForCausalLM"]},
    "an MLA class without its sizes": {
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "model_type": "kimi_k2",
    },
    "speculators' form": {"speculators_model_type": "eagle3"},
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_facts_that_contradict_each_other_do_not_fit(case: str, config: dict[str, Any]) -> None:
    changed = {k: v for k, v in (config | CONTRADICTIONS[case]).items() if v is not ...}
    assert misfits("eagle3.1", changed)


def test_inspect_fits_the_report_schema() -> None:
    printed = CliRunner().invoke(cli, ["inspect", str(REAL), "--format", "json"])
    report = json.loads(printed.stdout)
    assert misfits("report", report) == []
    del report["summary"]
    assert misfits("report", report) == ["$: 'summary' is a required property"]


# What verify says of a manifest that does not fit.

BROKEN: dict[str, tuple[Any, str]] = {
    "mode": (..., "eagleconv.json has no mode"),
    "schema_version": (2, "eagleconv.json has form 2, and this eagleconv knows form 1 only"),
    "before": ("specforge", 'eagleconv.json: before is "specforge", expected object'),
    "tensors": ({}, "eagleconv.json: tensors is empty"),
    "aux_layers": (
        {"rule": "guessed", "text": "", "boundaries": None},
        'eagleconv.json: aux_layers.rule is "guessed", expected "explicit" or "default" or "last"',
    ),
    "files": (
        {"config.json": {"sha256": "0", "size": 1}},
        "eagleconv.json: files['config.json'].sha256 is \"0\", which does not fit pattern "
        '"^[0-9a-f]{64}$"',
    ),
}


@pytest.mark.parametrize("key", BROKEN)
def test_verify_names_what_does_not_fit(key: str, output: Path, tmp_path: Path) -> None:
    value, sentence = BROKEN[key]
    manifest = json.loads((output / "eagleconv.json").read_text()) | {key: value}
    broken = tmp_path / "out"
    broken.mkdir()
    for name in ("config.json", "model.safetensors"):
        (broken / name).symlink_to(output / name)
    text = json.dumps({k: v for k, v in manifest.items() if v is not ...})
    (broken / "eagleconv.json").write_text(text)
    result = CliRunner().invoke(cli, ["verify", str(broken)])
    assert isinstance(result.exception, EagleconvError)
    assert result.exception.exit_code == 4
    assert result.stderr.splitlines() == [f"  {sentence}"]
