"""Rules about the files a drafter comes in."""

import os
from collections.abc import Iterator

from eagleconv.rules.rule import Hit, Rule
from eagleconv.rules.subject import Subject


def _pickle(s: Subject) -> Iterator[Hit]:
    if s.checkpoint.form == "pickle":
        yield Hit(
            f"the weights are a pickle ({', '.join(s.checkpoint.weight_files)})",
            "run upgrade, which writes safetensors",
            file=s.checkpoint.weight_files[0],
        )


def _side_files(s: Subject) -> Iterator[Hit]:
    if s.checkpoint.form == "side files":
        yield Hit(
            f"these are a trainer's own files ({', '.join(s.checkpoint.weight_files)}), which no "
            "engine loads",
            "run upgrade, which writes a checkpoint of them",
            file=s.checkpoint.weight_files[0],
        )


def _index(s: Subject) -> Iterator[Hit]:
    shards = [f for f in s.checkpoint.weight_files if f.endswith(".safetensors")]
    if len(shards) > 1 and not any(f.endswith(".index.json") for f in s.checkpoint.weight_files):
        yield Hit(
            f"{len(shards)} weight files and no index",
            "run upgrade, which writes one",
            file=shards[0],
        )


def _wrapped(s: Subject) -> Iterator[Hit]:
    names = [n for n in s.drafter.tensors.values() if n.startswith("model.")]
    if names and len(names) >= len(s.drafter.tensors) - 4:
        yield Hit(
            f"tensor names are wrapped in `model.` ({names[0]})",
            "run upgrade, which unwraps them",
            tensor=names[0],
        )


def _path(s: Subject) -> Iterator[Hit]:
    if not any(engine.name == "vllm" for engine, _ in s.engines):
        return
    base = os.path.basename(os.path.normpath(s.checkpoint.source)).lower()
    if "eagle3" not in base and "eagle-3" not in base:
        guess = "eagle (1/2)" if "eagle-" in base else "draft_model"
        yield Hit(
            f"without an explicit method, vLLM takes a drafter in {base!r} for {guess}",
            'start it with "method": "eagle3"',
            engine="vllm",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        "ECF001",
        "weights-in-a-pickle",
        "warning",
        "The weights are safetensors.",
        "A pickle can run code when it is loaded; TensorRT-Edge-LLM and others load safetensors "
        "only ([TensorRT-Edge-LLM#162]"
        "(https://github.com/NVIDIA/TensorRT-Edge-LLM/issues/162)).",
        "`pytorch_model.bin` alone",
        "Store the weights as safetensors.",
        "upgrade",
        check=_pickle,
    ),
    Rule(
        "ECF002",
        "shard-index-missing",
        "warning",
        "Sharded weights have an index.",
        "Some loaders take the first file alone, others all that match; trainers' loaders of "
        "embeddings require it "
        "([SpecForge@273f64d9](https://github.com/sgl-project/SpecForge/commit/273f64d9)).",
        "`model-00001-of-00002.safetensors`, no `model.safetensors.index.json`",
        "Write the index.",
        "upgrade",
        check=_index,
    ),
    Rule(
        "ECF003",
        "trainers-own-files",
        "error",
        "The drafter is a checkpoint, not the state of a training run.",
        "No engine reads training_state.pt or draft_model.pt "
        "([Automodel#2447](https://github.com/NVIDIA-NeMo/Automodel/pull/2447)).",
        "`draft_model.pt` and `eagle3_meta.pt`",
        "Export it.",
        "upgrade",
        check=_side_files,
    ),
    Rule(
        "ECF004",
        "names-wrapped-in-model",
        "info",
        "Tensor names are not wrapped in `model.`.",
        "vLLM adds that prefix itself and refuses names that have it "
        "([Automodel#2841](https://github.com/NVIDIA-NeMo/Automodel/pull/2841)).",
        "`model.layers.0.hidden_norm.weight`",
        "Strip the prefix.",
        "upgrade",
        check=_wrapped,
    ),
    Rule(
        "ECF005",
        "method-guessed-from-path",
        "info",
        "vLLM can tell the method from the path, if it is not given.",
        "`method` omitted, vLLM looks for `eagle3` or `eagle-` in the path and takes anything else "
        "for a separate draft model (`config/speculative.py:1328-1345`).",
        "a directory called `my-drafter`",
        'Start it with `"method": "eagle3"`.',
        needs=("engine",),
        check=_path,
    ),
)
