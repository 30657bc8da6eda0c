"""Engine facts: every one can apply, names its source, and changes an answer of its versions."""

from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from eagleconv.checkpoint.local import open_local
from eagleconv.drafter.facts import AuxLayers
from eagleconv.drafter.read import read_drafter
from eagleconv.engines import ENGINES, Answer, Engine, answer, find_engine, traits
from eagleconv.engines.engine import EngineFact
from eagleconv.errors import UsageError
from tests.drafters import make_spec
from tests.test_upgrade_cli import REAL

KNOWN = traits(read_drafter(open_local(str(REAL))).spec())
#: What an engine does not run of the plainest drafter, avoided: reduced vocabulary, default taps.
PLAIN = {"atom": {"vocabulary": "full"}, "mlx-vlm": {"aux_rule": "explicit"}}
FACTS = [(engine, fact) for engine in ENGINES for fact in engine.facts]
VLLM = find_engine("vllm")[0]
SGLANG = find_engine("sglang")[0]


def plain(engine: Engine, **changes: Any) -> dict[str, Any]:
    """Return traits of a drafter the engine runs, with some changed."""
    return KNOWN | PLAIN.get(engine.name, {}) | changes


def versions_of(engine: Engine, fact: EngineFact) -> list[str]:
    """Return versions at the ends of the ranges facts name, for which this one holds."""
    if not engine.oldest:
        return [engine.version]
    named = {
        s.version.removesuffix(".*")
        for f in engine.facts
        for s in SpecifierSet(f.versions)
        if s.operator in (">=", "==")
    } | {engine.oldest, engine.version, engine.newest}
    return [v for v in sorted(named, key=Version) if fact.holds(v)]


@pytest.mark.parametrize(("engine", "fact"), FACTS, ids=lambda x: getattr(x, "name", ""))
def test_a_fact_names_traits_that_exist_and_a_source(engine: Engine, fact: EngineFact) -> None:
    assert fact.when.keys() <= KNOWN.keys()
    assert fact.source
    assert fact.reason.strip(" .") == fact.reason
    assert fact.verdict in ("unknown", "silently wrong", "refused")
    assert fact.runner in ("", *engine.runners)


@pytest.mark.parametrize(("engine", "fact"), FACTS, ids=lambda x: getattr(x, "name", ""))
def test_a_fact_changes_the_answer_of_a_version_it_holds_for(
    engine: Engine, fact: EngineFact
) -> None:
    holding = versions_of(engine, fact)
    assert holding, "no version that was read has it"
    changed = plain(engine, **{trait: values[0] for trait, values in fact.when.items()})
    found = answer(engine, changed, holding[0], fact.runner or None)
    assert (fact.reason, fact.source) in found.reasons


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_an_engine_is_described(engine: Engine) -> None:
    assert engine.facts
    assert answer(engine, plain(engine)).verdict == "supported"
    assert bool(engine.oldest) == bool(engine.newest) == engine.verified
    for described in (*engine.facts, *engine.notes):
        SpecifierSet(described.versions)
        assert described.source
    if engine.verified:
        for fact in engine.facts:
            assert fact.file.endswith(".py"), fact


def test_a_normed_residual_is_silently_wrong_where_it_is_not_read() -> None:
    verdicts = {e.name: answer(e, plain(e, residual="normed")).verdict for e in ENGINES}
    right = {name for name, verdict in verdicts.items() if verdict == "supported"}
    assert right == {"vllm", "llama.cpp", "mlx-vlm"}
    assert {v for n, v in verdicts.items() if n not in right} == {"silently wrong"}


@pytest.mark.parametrize(
    ("name", "changes", "verdict"),
    [
        ("vllm==0.32", {"input_norm": "per_aux", "feedback": "post_norm"}, "supported"),
        ("vllm==0.22", {"input_norm": "per_aux", "feedback": "post_norm"}, "supported"),
        ("vllm==0.21", {"input_norm": "per_aux"}, "refused"),
        ("vllm==0.21", {"feedback": "post_norm"}, "silently wrong"),
        ("vllm==0.17.1", {"input_norm": "concat"}, "refused"),
        ("vllm==0.18", {"input_norm": "concat"}, "supported"),
        ("vllm==0.22.1", {"block": "mla", "input_norm": "per_aux"}, "silently wrong"),
        ("vllm==0.23", {"block": "mla", "input_norm": "per_aux"}, "supported"),
        ("vllm==0.24", {"block": "mla", "input_norm": "concat"}, "silently wrong"),
        ("vllm==0.25", {"block": "mla", "input_norm": "concat"}, "refused"),
        ("vllm==0.17", {"block": "mla"}, "refused"),
        ("vllm==0.23", {"block": "qwen3"}, "refused"),
        ("vllm==0.24", {"block": "qwen3"}, "supported"),
        ("vllm==0.25.1", {"block": "qwen3", "window": True}, "silently wrong"),
        ("vllm==0.26", {"block": "qwen3", "window": True}, "supported"),
        ("vllm==0.10.0", {"residual": "normed"}, "silently wrong"),
        ("vllm==0.10.1", {"residual": "normed"}, "supported"),
        ("vllm==0.11", {"several_layers": True}, "refused"),
        ("vllm==0.11.1", {"several_layers": True}, "supported"),
        ("vllm==0.15.1", {"drafting": "parallel"}, "refused"),
        ("vllm==0.16", {"drafting": "parallel"}, "supported"),
        ("vllm==0.24", {"fc_bias": True}, "refused"),
        ("vllm==0.25", {"fc_bias": True}, "silently wrong"),
        ("sglang==0.5.11", {"input_norm": "per_aux"}, "silently wrong"),
        ("sglang==0.5.12", {"input_norm": "per_aux"}, "supported"),
        ("sglang==0.5.12.post1", {"block": "mla", "input_norm": "per_aux"}, "silently wrong"),
        ("sglang==0.5.13", {"block": "mla", "input_norm": "per_aux"}, "supported"),
        ("sglang==0.5.16", {"input_norm": "concat"}, "silently wrong"),
        ("sglang==0.5.17", {"input_norm": "concat"}, "supported"),
        ("sglang==0.5.11", {"several_layers": True}, "refused"),
        ("sglang==0.5.12", {"several_layers": True}, "silently wrong"),
    ],
)
def test_an_older_version_answers_differently(
    name: str, changes: dict[str, Any], verdict: str
) -> None:
    engine, version = find_engine(name)
    assert answer(engine, plain(engine, **changes), version).verdict == verdict


def test_a_reason_of_an_older_version_names_the_version_that_does_it() -> None:
    found = answer(VLLM, plain(VLLM, feedback="post_norm"), "0.21.0")
    assert "norm_output needs 0.22" in found.reasons[0][0]


# Runners.


def last_state_only() -> list[Answer]:
    """Return the answers of both runners of vLLM 0.32, and of both together."""
    found = plain(VLLM, aux_rule="last", aux_three=False)
    return [answer(VLLM, found, "0.32.0", runner) for runner in ("V1", "V2", None)]


def test_runners_answer_for_themselves_and_the_engine_for_both() -> None:
    v1, v2, both = last_state_only()
    assert [v1.verdict, v2.verdict, both.verdict] == ["supported", "refused", "refused"]
    assert both.reasons[0][0].startswith("V2 runner: ")
    assert not v2.reasons[0][0].startswith("V2")


def test_the_v2_runner_honours_one_state_heads_from_0_33() -> None:
    found = plain(VLLM, aux_rule="last", aux_three=False)
    assert answer(VLLM, found, "0.33.0").verdict == "supported"


def test_parallel_drafting_goes_to_the_v1_runner_by_itself() -> None:
    found = answer(VLLM, plain(VLLM, drafting="parallel"), "0.32.0", "V2")
    assert found.verdict == "supported"
    assert found.notes == ("it takes its V1 runner for this by itself",)


# Engines and versions as a user names them.


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("vllm", "vllm", "0.32.0"),
        ("VLLM == 0.21", "vllm", "0.21.0"),
        ("vllm==1", "vllm", "1.0.0"),
        ("vllm==0.32.0", "vllm", "0.32.0"),
        ("sglang==0.5.12.post1", "sglang", "0.5.12.post1"),
        ("vllm==0.32rc1", "vllm", "0.32.0rc1"),
        ("trtllm", "trtllm", "1.x"),
        ("llama.cpp", "llama.cpp", "unpinned"),
    ],
)
def test_an_engine_is_found(text: str, name: str, version: str) -> None:
    engine, found = find_engine(text)
    assert (engine.name, found) == (name, version)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tgi", "known are vllm, sglang, trtllm, edge-llm, llama.cpp, openvino, mlx-vlm"),
        ("", "known are vllm"),
        ("vllm>=0.30", "with =="),
        ("vllm==latest", "such as vllm==1.2.3"),
        ("vllm==", "such as vllm==1.2.3"),
        ("vllm==0.32.*", "such as vllm==1.2.3"),
    ],
)
def test_what_is_no_engine_is_a_usage_error(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_engine(text)
    assert said in caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("version", "nearest"), [("0.8.0", "0.9.1"), ("0.99.0", "0.33.0"), ("1.0.0", "0.33.0")]
)
def test_a_version_nobody_read_is_answered_with_the_nearest_and_says_so(
    version: str, nearest: str
) -> None:
    for changes in ({}, {"feedback": "post_norm"}, {"residual": "normed"}):
        found = answer(VLLM, plain(VLLM, **changes), version)
        assert found.verdict == answer(VLLM, plain(VLLM, **changes), nearest).verdict
        assert found.version == version
        (note,) = found.notes
        assert f"vllm {version} was not read" in note
        assert nearest in note
    assert answer(VLLM, plain(VLLM), "0.32.0").notes == ()


# What a target does to the answer.


def test_ids_that_are_the_default_taps_do_no_harm_where_ids_are_not_read() -> None:
    default = make_spec(aux=AuxLayers(3, (2, 15, 27), "explicit"))
    assert traits(default, layers=None)["custom_taps"]
    assert traits(default, layers=31)["custom_taps"]
    assert not traits(default, layers=30)["custom_taps"]
    assert not traits(make_spec(aux=AuxLayers(3, None, "default")), layers=30)["custom_taps"]


def test_a_last_boundary_is_refused_where_the_target_does_not_capture_it() -> None:
    def verdict(target_type: str | None) -> str:
        return answer(SGLANG, plain(SGLANG, taps_last=True, target_type=target_type)).verdict

    assert verdict("llama") == verdict(None) == "refused"
    assert verdict("gpt_oss") == "supported"


def test_taps_from_boundary_1_have_no_form_for_deepseek_targets_of_sglang() -> None:
    def verdict(version: str, target_type: str | None) -> str:
        found = plain(SGLANG, first_tap=1, target_type=target_type)
        return answer(SGLANG, found, version).verdict

    assert verdict("0.5.23", "deepseek_v3") == "silently wrong"
    assert verdict("0.5.12", "deepseek_v3") == "supported"
    assert verdict("0.5.23", "llama") == "supported"
