"""A drafter and targets: the right one in other clothes, and the wrong ones."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner, Result

import eagleconv
from eagleconv.checkpoint.schema import load
from eagleconv.cli.main import cli
from eagleconv.errors import SourceError
from eagleconv.target.match import Matched
from tests.target import made, made_pair


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a target, a drafter, and the drafter upgraded with its target."""
    root = tmp_path_factory.mktemp("pair")
    made_pair.target(root / "target")
    made_pair.drafter(root / "drafter")
    eagleconv.upgrade(str(root / "drafter"), str(root / "upgraded"), target=str(root / "target"))
    return root


def matched(home: Path, target: Path | str, drafter: str = "upgraded", **options: Any) -> Matched:
    return eagleconv.match(str(home / drafter), str(target), **options)


def level(found: Matched, name: str) -> tuple[str, str]:
    one = next(level for level in found.levels if level.name == name)
    return one.verdict, " ".join(one.sentences)


def again(home: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(home / "target", tmp_path / "again"))


def test_the_recorded_target_matches(home: Path) -> None:
    found = matched(home, home / "target")
    assert found.verdict == "match"
    assert {name: level(found, name)[0] for name in ("tokenizer", "chat template", "weights")} == {
        "tokenizer": "equal",
        "chat template": "equal",
        "weights": "equal",
    }


def test_as_published_it_is_compatible_and_says_what_is_not_known(home: Path) -> None:
    found = matched(home, home / "target", "drafter")
    assert found.verdict == "compatible"
    assert level(found, "weights")[0] == "unknown"
    assert "nothing identifies the target's weights" in found.open[0]


def test_the_fingerprint_stands_for_the_target(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "target.json"
    result = run("fingerprint", home / "target", "-o", path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert matched(home, path).verdict == "match"
    assert run("match", home / "upgraded", path).exit_code == 0


def test_the_fingerprint_is_stable_and_fits_its_schema(home: Path, tmp_path: Path) -> None:
    first = eagleconv.fingerprint(str(home / "target"))
    text = json.loads(json.dumps(first.as_json()))
    jsonschema.Draft202012Validator(load("fingerprint")).validate(text)
    (home / "target.json").unlink(missing_ok=True)
    outputs = [run("fingerprint", home / "target").stdout for _ in range(2)]
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0]) == text
    recorded = json.loads((home / "upgraded/eagleconv.json").read_text())["target"]
    assert recorded == text


def test_quick_reads_less_and_still_matches(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "quick.json"
    assert run("fingerprint", home / "target", "--quick", "-o", path).exit_code == 0
    assert path.stat().st_size < len(run("fingerprint", home / "target").stdout)
    assert matched(home, path).verdict == "match"


Edit = Callable[[Path], Any]


def resave(target: Path) -> None:
    """Store it as another tool would: other shards, key order, keys, serialiser."""
    from tokenizers import Tokenizer

    config = json.loads((target / "config.json").read_text())
    config["torch_dtype"] = config.pop("dtype")
    config = dict(reversed(config.items()))
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json")).to_str(pretty=True)
    template = (target / "chat_template.jinja").read_text()
    shutil.rmtree(target)
    made_pair.target(target, made_pair.arrays(), shards=3)
    (target / "config.json").write_text(json.dumps(config, indent=4))
    (target / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    (target / "chat_template.jinja").unlink()
    (target / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))


def test_saved_again_it_still_matches(home: Path, tmp_path: Path) -> None:
    target = again(home, tmp_path)
    resave(target)
    found = matched(home, target)
    assert found.verdict == "match", [level for level in found.levels if level.verdict != "equal"]
    assert (
        eagleconv.fingerprint(str(target)).digest
        == eagleconv.fingerprint(str(home / "target")).digest
    )


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_another_storage_dtype_matches(home: Path, dtype: str, tmp_path: Path) -> None:
    target = made_pair.target(tmp_path / "t", dtype=dtype)
    found = matched(home, target)
    assert (found.verdict, level(found, "weights")[0]) == ("match", "equal")
    assert "rounding of their dtype" in level(found, "weights")[1]


@pytest.mark.parametrize("scheme", [made.int8, made.fp8, made.int4])
def test_a_quantised_build_is_compatible(
    home: Path, scheme: Callable[[Any], Any], tmp_path: Path
) -> None:
    weights = made.matrices(made_pair.arrays(), scheme)
    found = matched(home, made_pair.target(tmp_path / "t", weights))
    assert (found.verdict, level(found, "weights")[0]) == ("compatible", "harmless")
    assert "rounded by" in level(found, "weights")[1]


@pytest.mark.parametrize("layer", [0, made_pair.LAYERS - 1])
@pytest.mark.parametrize("projection", ["self_attn.q_proj", "mlp.down_proj"])
def test_one_merged_adapter_is_a_mismatch(
    home: Path, layer: int, projection: str, tmp_path: Path
) -> None:
    weights = made_pair.arrays()
    name = f"model.layers.{layer}.{projection}.weight"
    rng = np.random.default_rng(1)
    rows, width = weights[name].shape
    update = rng.normal(size=(rows, 4)) @ rng.normal(size=(4, width)) * 1e-3
    weights[name] = (weights[name] + update).astype(np.float32)
    found = matched(home, made_pair.target(tmp_path / "t", weights))
    assert found.verdict == "mismatch"
    assert f"first layers.{layer}.{projection}.weight" in level(found, "weights")[1]


def swapped_ids(target: Path) -> None:
    path = target / "tokenizer.json"
    text = json.loads(path.read_text(encoding="utf-8"))
    names = {v: k for k, v in text["model"]["vocab"].items()}
    text["model"]["vocab"] |= {names[500]: 501, names[501]: 500}
    path.write_text(json.dumps(text), encoding="utf-8")


def changed_merge(target: Path) -> None:
    path = target / "tokenizer.json"
    text = json.loads(path.read_text(encoding="utf-8"))
    merges = text["model"]["merges"]
    merges[100], merges[101] = merges[101], merges[100]
    path.write_text(json.dumps(text), encoding="utf-8")


def changed_added_token(target: Path) -> None:
    path = target / "tokenizer.json"
    text = json.loads(path.read_text(encoding="utf-8"))
    old = text["added_tokens"][2]["content"]
    text["added_tokens"][2]["content"] = "<|bot|>"
    text["model"]["vocab"]["<|bot|>"] = text["model"]["vocab"].pop(old)
    path.write_text(json.dumps(text), encoding="utf-8")


def lower_case(target: Path) -> None:
    made_pair.change(target, "tokenizer.json", normalizer={"type": "Lowercase"})


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (swapped_ids, "id 500"),
        (changed_merge, "merge 100"),
        (changed_added_token, "<|bot|>"),
        (lower_case, "Lowercase"),
    ],
)
def test_another_tokenizer_is_a_mismatch(
    home: Path, edit: Edit, named: str, tmp_path: Path
) -> None:
    target = again(home, tmp_path)
    edit(target)
    found = matched(home, target)
    assert (found.verdict, level(found, "tokenizer")[0]) == ("mismatch", "different")
    assert named in level(found, "tokenizer")[1]
    # Against a drafter that records nothing, but carries the tokenizer.
    shutil.copytree(home / "drafter", tmp_path / "drafter")
    shutil.copy(home / "target/tokenizer.json", tmp_path / "drafter")
    assert eagleconv.match(str(tmp_path / "drafter"), str(target)).verdict == "mismatch"


def other_template(target: Path) -> None:
    (target / "chat_template.jinja").write_text("{{ messages[0].content }}")


def no_template(target: Path) -> None:
    (target / "chat_template.jinja").unlink()


def padded(target: Path) -> None:
    weights = made_pair.arrays()
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = np.pad(weights[name], ((0, 64), (0, 0)))
    shutil.rmtree(target)
    made_pair.target(target, weights, vocab_size=made.SIZES["vocab"] + 64)


def longer(target: Path) -> None:
    made_pair.change(target, "config.json", max_position_embeddings=131072)


def scaled(target: Path) -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    made_pair.change(target, "config.json", rope_scaling=rope)


def more_added_tokens(target: Path) -> None:
    path = target / "tokenizer.json"
    text = json.loads(path.read_text(encoding="utf-8"))
    new = text["added_tokens"][0] | {"id": made.SIZES["vocab"], "content": "<|unused|>"}
    text["added_tokens"].append(new)
    path.write_text(json.dumps(text), encoding="utf-8")
    made_pair.change(target, "config.json", vocab_size=made.SIZES["vocab"] + 64)


@pytest.mark.parametrize(
    ("edit", "name", "named"),
    [
        (other_template, "chat template", "acceptance is lower"),
        (no_template, "chat template", "this one has none"),
        (padded, "vocabulary", "padding"),
        (longer, "positions", "longest context 131072, recorded 4096"),
        (scaled, "positions", "rope differs in factor"),
    ],
)
def test_harmless_differences_are_named(
    home: Path, edit: Edit, name: str, named: str, tmp_path: Path
) -> None:
    target = again(home, tmp_path)
    edit(target)
    found = matched(home, target)
    assert found.verdict == "compatible"
    verdict, sentence = level(found, name)
    assert (verdict, named in sentence) == ("harmless", True), sentence
    assert f"{name} differs harmlessly" in found.open
    assert run("match", home / "upgraded", target).exit_code == 0
    assert run("match", home / "upgraded", target, "--strict").exit_code == 1


def fewer_layers(target: Path) -> None:
    made_pair.change(target, "config.json", num_hidden_layers=7)


def wider(target: Path) -> None:
    made_pair.change(target, "config.json", hidden_size=256)


def other_base(target: Path) -> None:
    made_pair.change(target, "config.json", rope_theta=500000.0)


def larger_vocabulary(target: Path) -> None:
    made_pair.change(target, "config.json", vocab_size=32000)
    (target / "tokenizer.json").unlink()


@pytest.mark.parametrize(
    ("edit", "name"),
    [
        (fewer_layers, "shapes"),
        (wider, "shapes"),
        (other_base, "positions"),
        (larger_vocabulary, "vocabulary"),
    ],
)
def test_another_config_is_a_mismatch(home: Path, edit: Edit, name: str, tmp_path: Path) -> None:
    target = again(home, tmp_path)
    made_pair.change(target, "config.json", rope_theta=10000.0)
    shutil.copytree(home / "drafter", tmp_path / "drafter")
    made_up = tmp_path / "upgraded"
    eagleconv.upgrade(str(tmp_path / "drafter"), str(made_up), target=str(target))
    edit(target)
    found = eagleconv.match(str(made_up), str(target))
    assert found.verdict == "mismatch"
    assert level(found, name)[0] == "different"


def test_taps_outside_the_target(home: Path, tmp_path: Path) -> None:
    target = made_pair.target(tmp_path / "t", made.arrays(), num_hidden_layers=3)
    found = matched(home, target, "drafter")
    assert (found.verdict, level(found, "taps")[0]) == ("mismatch", "different")


def with_embedding(home: Path, tmp_path: Path, values: Any, ids: list[int] | None = None) -> Path:
    """Write a drafter that owns an embedding, as bfloat16."""
    directory = made_pair.drafter(tmp_path / "own", embedding=True)
    from tests.drafters import write_safetensors

    entries = {}
    data = (directory / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            start, end = (8 + size + place for place in entry["data_offsets"])
            entries[name] = (entry["dtype"], tuple(entry["shape"]), data[start:end])
    entries["embed_tokens.weight"] = made.stored(values, "BF16")
    write_safetensors(directory / "model.safetensors", entries)
    return directory


@pytest.mark.parametrize(
    ("change", "verdict", "overall"),
    [
        (lambda e: e, "equal", "compatible"),
        (lambda e: e + 0.01, "harmless", "compatible"),
        (lambda e: e[::-1].copy(), "different", "mismatch"),
    ],
)
def test_the_drafters_own_embedding_shows_its_target(
    home: Path, change: Callable[[Any], Any], verdict: str, overall: str, tmp_path: Path
) -> None:
    target = made_pair.target(tmp_path / "t", dtype="BF16")
    own = with_embedding(home, tmp_path, change(made_pair.arrays()["model.embed_tokens.weight"]))
    found = eagleconv.match(str(own), str(target))
    assert (found.verdict, level(found, "embedding")[0]) == (overall, verdict)


def test_names_are_compared(home: Path, tmp_path: Path) -> None:
    for base, verdict in (("org/target", "equal"), ("org/other", "unknown")):
        drafter = Path(shutil.copytree(home / "drafter", tmp_path / base.replace("/", "-")))
        (drafter / "README.md").write_text(f"---\nbase_model: {base}\n---\n# A drafter\n")
        found = eagleconv.match(str(drafter), str(home / "target"))
        assert level(found, "names")[0] == verdict
        assert f"names {base}" in level(found, "names")[1]


def run(*args: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in args], standalone_mode=False)


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_every_format(home: Path, form: str, tmp_path: Path) -> None:
    target = again(home, tmp_path)
    other_template(target)
    result = run("match", home / "upgraded", target, "--format", form)
    assert result.exit_code == 0
    assert "compatible" in result.stdout
    assert "chat template" in result.stdout
    if form == "json":
        report = json.loads(result.stdout)
        jsonschema.Draft202012Validator(load("report")).validate(report)
        assert report["target"]["verdict"] == "compatible"
        assert [f["code"] for f in report["findings"]] == ["ECM005"]
        assert report["summary"]["warnings"] == 1
        assert report["summary"]["checks_run"] > 5


def test_a_mismatch_exits_with_1_in_every_format(home: Path, tmp_path: Path) -> None:
    target = again(home, tmp_path)
    lower_case(target)
    for form in ("text", "json", "markdown"):
        assert run("match", home / "upgraded", target, "--format", form).exit_code == 1


def test_without_weights_it_says_so(home: Path, tmp_path: Path) -> None:
    found = matched(home, home / "target" / "config.json")
    assert found.verdict == "compatible"
    assert level(found, "weights") == ("unknown", "the target is a config.json without weights")
    assert level(found, "tokenizer")[0] == "unknown"


def test_an_upgrade_again_keeps_the_record(home: Path, tmp_path: Path) -> None:
    once = home / "upgraded"
    for number, target in enumerate((None, str(home / "target"))):
        out = tmp_path / str(number)
        assert eagleconv.upgrade(str(once), str(out), target=target).already
        assert (out / "eagleconv.json").read_bytes() == (once / "eagleconv.json").read_bytes()


def test_a_record_is_added_to_an_upgrade_without_one(home: Path, tmp_path: Path) -> None:
    eagleconv.upgrade(
        str(home / "drafter"), str(tmp_path / "bare"), target=str(home / "target/config.json")
    )
    bare = json.loads((tmp_path / "bare/eagleconv.json").read_text())
    assert bare["target"]["weights"] is None
    eagleconv.upgrade(str(tmp_path / "bare"), str(tmp_path / "full"), target=str(home / "target"))
    assert eagleconv.match(str(tmp_path / "full"), str(home / "target")).verdict == "match"
    assert eagleconv.verify(str(tmp_path / "full")).problems == ()


def test_a_record_beside_other_weights_is_not_believed(home: Path, tmp_path: Path) -> None:
    """The same sizes and config, trained for something else: the record was copied along."""
    copied = Path(shutil.copytree(home / "upgraded", tmp_path / "copied"))
    with open(copied / "model.safetensors", "r+b") as file:
        file.seek(-64, os.SEEK_END)
        file.write(bytes(64))
    found = eagleconv.match(str(copied), str(home / "target"))
    assert found.verdict == "compatible"
    assert level(found, "weights") == (
        "unknown",
        "what eagleconv.json records is not of this drafter: model.safetensors has other bytes "
        "than it records",
    )


def test_another_target_is_not_recorded_over_the_first(home: Path, tmp_path: Path) -> None:
    target = made_pair.target(tmp_path / "t", made_pair.arrays(seed=1))
    result = run("upgrade", home / "upgraded", "--target", target, "-o", tmp_path / "out")
    assert result.exception is not None
    assert "was made for another target" in str(result.exception)
    assert "weights" in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda p: p.write_text("{"), "is not valid JSON"),
        (lambda p: p.write_text('{"kind": "other"}'), "is no fingerprint of this version"),
        (lambda p: p.write_text('{"kind": "eagleconv target fingerprint"}'), "is no fingerprint"),
    ],
)
def test_a_broken_fingerprint(
    home: Path, make: Callable[[Path], Any], sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "f.json"
    make(path)
    with pytest.raises(SourceError, match=sentence):
        matched(home, path)


def test_a_changed_fingerprint_is_refused(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    run("fingerprint", home / "target", "-o", path)
    text = json.loads(path.read_text())
    text["hidden_states"]["hidden_size"] = 64
    path.write_text(json.dumps(text))
    with pytest.raises(SourceError, match="was changed"):
        matched(home, path)
    del text["tokenizer"]
    path.write_text(json.dumps(text))
    with pytest.raises(SourceError, match="no whole fingerprint"):
        matched(home, path)


def test_a_target_is_no_drafter_and_a_drafter_no_target(home: Path) -> None:
    with pytest.raises(SourceError):
        eagleconv.match(str(home / "target"), str(home / "target"))
    with pytest.raises(SourceError):
        eagleconv.match(str(home / "drafter"), str(home / "drafter"))
