"""Engine facts: every one can apply, names its source, and changes an answer."""

from eagleconv.checkpoint.local import open_local
from eagleconv.drafter.read import read_drafter
from eagleconv.engines import ENGINES, answer, traits
from tests.test_upgrade_cli import REAL


def test_every_fact_names_traits_that_exist_and_a_source() -> None:
    known = traits(read_drafter(open_local(str(REAL))).spec())
    for engine in ENGINES:
        for fact in engine.facts:
            assert fact.when.keys() <= known.keys(), fact
            assert fact.source


def test_every_fact_changes_an_answer() -> None:
    known = traits(read_drafter(open_local(str(REAL))).spec())
    for engine in ENGINES:
        assert answer(engine, known).verdict == "supported"
        for fact in engine.facts:
            changed = known | {trait: values[0] for trait, values in fact.when.items()}
            assert fact.verdict in ("silently wrong", "refused")
            assert answer(engine, changed).verdict != "supported", fact


def test_a_normed_residual_is_silently_wrong_on_sglang_only_there() -> None:
    known = traits(read_drafter(open_local(str(REAL))).spec()) | {"residual": "normed"}
    verdicts = {e.name: answer(e, known).verdict for e in ENGINES}
    assert verdicts == {"vllm": "supported", "sglang": "silently wrong", "trtllm": "silently wrong"}
