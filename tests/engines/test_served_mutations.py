"""The same predictions end to end: a real drafter, a real target, vLLM's acceptance counters.

A drafter called fine accepts exactly what the good one accepts; one that is said to compute
something else accepts less, and its text is the same all the while: nobody would see it.
"""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from fixtures.changes import Change, editing, without

from . import acceptance, target
from .mutations import GONE, config, nothing
from .test_agreement import FINE, OTHER, verdict

REAL = target.ROOT / "fixtures" / "smollm2-135m-eagle3"
_IDS = "eagle_aux_hidden_state_layer_ids"


def renamed(tensors: dict[str, Any]) -> None:
    """Store the layer under its other legal name."""
    for name in [n for n in tensors if n.startswith("midlayer.")]:
        tensors[name.replace("midlayer.", "layers.0.")] = tensors.pop(name)


#: Name -> what is done to the good drafter, and what is predicted.
SERVED: dict[str, tuple[Change, str]] = {
    "as upgraded": (nothing, FINE),
    "layers.0 for midlayer": (editing(renamed), FINE),
    "ids nested only": (config(**{_IDS: GONE}), OTHER),
    "no d2t": (without("d2t", "t2d"), OTHER),
    "no hidden_norm": (without("midlayer.hidden_norm.weight"), OTHER),
    "no lm_head": (without("lm_head.weight"), OTHER),
    "fc_norm without tensors": (config(fc_norm=True), OTHER),
    "two layers declared": (config(num_hidden_layers=2), OTHER),
}


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, dict[str, Any]]]:
    """Prediction and counters of every mutation; one vLLM process runs them all."""
    import eagleconv
    from eagleconv.drafter.declared import Declared

    scratch = tmp_path_factory.mktemp("served")
    smollm2 = target.smollm2()
    good = scratch / "good-eagle3"
    eagleconv.upgrade(str(REAL), str(good), target=str(smollm2))
    (good / "eagleconv.json").unlink()
    predicted, directories = [], []
    for number, (change, _) in enumerate(SERVED.values()):
        directory = scratch / f"{number}-eagle3"
        shutil.copytree(good, directory)
        change(directory)
        directories.append(directory)
        found = eagleconv.validate(
            str(directory),
            target=str(smollm2),
            engines=["vllm==0.32"],
            declared=Declared(norm_output_meaning="feedback"),
        )
        predicted.append(verdict(found, "V1"))
    prompts = acceptance.question_ids(smollm2, acceptance.QUESTIONS[:5])
    reports = acceptance.measure(smollm2, directories, prompts=prompts, max_tokens=32)
    return dict(zip(SERVED, zip(predicted, reports, strict=True), strict=True))


@pytest.mark.parametrize("name", SERVED)
def test_prediction_and_counters(
    name: str,
    served: dict[str, tuple[str, dict[str, Any]]],
    table: list[tuple[str, ...]],
) -> None:
    """Fine is equal to the good one; something else accepts less, with the same text."""
    predicted, report = served[name]
    _, good = served["as upgraded"]
    accepted = " ".join(str(count) for count in report["accepted_per_pos"])
    table.append((f"real drafter, {name}: {predicted}", "", f"{report['num_drafts']}: {accepted}"))
    assert predicted == SERVED[name][1]
    assert report["outputs"] == good["outputs"], "a drafter never changes the text"
    if predicted == FINE:
        assert report == good
    else:
        assert report["num_accepted_tokens"] < good["num_accepted_tokens"]


def test_the_good_one_accepts(served: dict[str, tuple[str, dict[str, Any]]]) -> None:
    """Otherwise accepting less could not be seen."""
    assert served["as upgraded"][1]["num_accepted_tokens"] > 20
