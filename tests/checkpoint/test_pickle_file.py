"""Pickles: .bin weights and the side files of trainers."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import checkpoint, index, model

from eagleconv.checkpoint.json_file import dump_json
from eagleconv.checkpoint.local import open_local
from eagleconv.checkpoint.manifest import write_records
from eagleconv.checkpoint.writer import OutputDirectory
from eagleconv.errors import MissingExtraError, SourceError

ROOT = Path(__file__).resolve().parents[2]


def test_without_torch_there_is_one_sentence(tmp_path: Path) -> None:
    checkpoint(tmp_path, {"pytorch_model.bin": b"PK\x03\x04"})
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from eagleconv.checkpoint.local import open_local\n"
        "from eagleconv.errors import MissingExtraError\n"
        "try: open_local(sys.argv[1])\n"
        "except MissingExtraError as error: print(error.message, error.hint, error.exit_code)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.stdout == (
        "pytorch_model.bin is a pickle, and reading it needs torch pip install 'eagleconv[run]' 5\n"
    )


def test_side_file_without_torch_is_an_error_only_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    checkpoint(tmp_path, {"model.safetensors": model({"a": ("U8", [1])}), "eagle_meta.pt": b"x"})
    opened = open_local(str(tmp_path))
    with pytest.raises(MissingExtraError, match=r"eagle_meta\.pt"):
        opened.side_data.get("selected_token_ids")


torch = pytest.importorskip("torch")


class Evil:
    """Runs a command where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def save(path: Path, value: Any, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(value, path, **options)
    return path


def weights() -> dict[str, Any]:
    """Every dtype that torch has, and the shapes and strides that loops forget."""
    torch.manual_seed(0)
    found = {"transposed": torch.randn(6, 4).t(), "slice": torch.arange(99)[3:50:2]}
    found |= {"scalar": torch.tensor(3), "empty": torch.zeros(0, 4), "odd": torch.ones(7).bool()}
    names = "bool uint8 int8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32"
    names += " float64 complex64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz"
    for name in (names + " float8_e8m0fnu").split():
        dtype = getattr(torch, name)
        raw = torch.randint(0, 256, (24 * torch.empty(0, dtype=dtype).element_size(),))
        raw = raw % 2 if name == "bool" else raw
        found[name] = raw.to(torch.uint8).view(dtype).reshape(2, 12)
    found["alias"] = found["float32"]
    found["part"] = found["float32"][1]
    found["parameter"] = torch.nn.Parameter(torch.randn(3))
    return found


def library(value: dict[str, Any]) -> dict[str, tuple[str, list[int], bytes]]:
    import safetensors
    from safetensors.torch import save as save_bytes

    data = save_bytes(
        {name: tensor.detach().clone().contiguous() for name, tensor in value.items()}
    )
    found = safetensors.deserialize(data)
    return {name: (t["dtype"], t["shape"], bytes(t["data"])) for name, t in found}


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}])
def test_same_bytes_as_the_safetensors_library(options: Any, tmp_path: Path) -> None:
    value = weights()
    if options:  # torch itself cannot read the younger dtypes from its old format
        value = {
            n: t
            for n, t in value.items()
            if not n.startswith(("uint16", "uint32", "uint64", "float8"))
        }
    save(checkpoint(tmp_path, {}) / "pytorch_model.bin", value, **options)
    opened = open_local(str(tmp_path))
    assert opened.form == "pickle"
    assert opened.weight_files == ("pytorch_model.bin",)
    assert list(opened.tensors) == list(value)
    ours = {n: (t.dtype, list(t.shape), opened.read(n)) for n, t in opened.tensors.items()}
    assert ours == library(value)
    for name, tensor in opened.tensors.items():
        assert (tensor.offset, tensor.nbytes) == (-1, len(ours[name][2]))
        assert b"".join(map(bytes, opened.reader.chunks(tensor, 5))) == ours[name][2]
    opened.close()


def test_written_as_safetensors(tmp_path: Path) -> None:
    import safetensors

    value = weights() | {"large": torch.randn(700, 800).t()}
    save(checkpoint(tmp_path / "src", {}) / "pytorch_model.bin", value)
    opened = open_local(str(tmp_path / "src"))
    with OutputDirectory(str(tmp_path / "out")) as output:
        entries = [(t.name, t.dtype, t.shape, (opened.reader, t)) for t in opened.tensors.values()]
        output.add_tensors(entries, {})
        output.commit(lambda records: dump_json({"files": write_records(records)}))
    data = (tmp_path / "out" / "model.safetensors").read_bytes()
    found = {
        n: (t["dtype"], t["shape"], bytes(t["data"])) for n, t in safetensors.deserialize(data)
    }
    assert found == library(value)


@pytest.mark.parametrize("key", ["state_dict", "model", "module"])
def test_nested_state_dict(key: str, tmp_path: Path) -> None:
    value = {
        key: {"a": torch.ones(2), "_extra_state": None},
        "epoch": 3,
        "opt": {"x": torch.ones(9)},
    }
    save(checkpoint(tmp_path, {}) / "pytorch_model.bin", value)
    opened = open_local(str(tmp_path))
    assert list(opened.tensors) == ["a"]
    assert opened.side_data == {"epoch": 3, "_extra_state": None}
    assert opened.notes == ("pytorch_model.bin: opt not read",)


def test_shards_with_and_without_index(tmp_path: Path) -> None:
    checkpoint(tmp_path, {})
    for number, name in enumerate("ab", 1):
        save(tmp_path / f"pytorch_model-0000{number}-of-00002.bin", {name: torch.ones(number)})
    opened = open_local(str(tmp_path))
    assert list(opened.tensors) == ["a", "b"]
    assert "is missing: the 2 shards were read" in opened.notes[0]
    weight_map = {name: f"pytorch_model-0000{n}-of-00002.bin" for n, name in enumerate("ab", 1)}
    (tmp_path / "pytorch_model.bin.index.json").write_bytes(index(weight_map))
    assert open_local(str(tmp_path)).weight_files[-1] == "pytorch_model.bin.index.json"
    (tmp_path / "pytorch_model.bin.index.json").write_bytes(
        index({**weight_map, "c": weight_map["a"]})
    )
    with pytest.raises(SourceError, match="names tensor 'c'"):
        open_local(str(tmp_path))
    (tmp_path / "pytorch_model.bin.index.json").write_bytes(index({**weight_map, "c": "gone.bin"}))
    with pytest.raises(SourceError, match=r"names gone\.bin, which is not there"):
        open_local(str(tmp_path))


def refused(root: Path) -> dict[str, tuple[Any, str]]:
    from collections import OrderedDict

    ones = torch.ones(4)
    return {
        "evil": (save(root / "evil", {"a": ones, "x": Evil(root / "ran")}), "objects other than"),
        "evil nested": (save(root / "en", {"model": {"a": Evil(root / "ran")}}), "posix.system"),
        "module": (save(root / "module", torch.nn.Linear(2, 2)), "would execute code"),
        "list": (save(root / "list", [ones]), "holds a list"),
        "no tensors": (save(root / "none", {"a": 1, "b": {}}), "no state dict (keys: a, b)"),
        "empty dict": (save(root / "nothing", OrderedDict()), "no state dict (keys: none)"),
        "sparse": (save(root / "sparse", {"a": torch.eye(3).to_sparse()}), "'a' is sparse"),
        "meta": (save(root / "meta", {"a": torch.empty(2, device="meta")}), "'a' has no data"),
        "dtype": (save(root / "dtype", {"a": torch.ones(2, dtype=torch.complex128)}), "complex128"),
    }


@pytest.mark.parametrize(
    "case",
    [
        "evil",
        "evil nested",
        "module",
        "list",
        "no tensors",
        "empty dict",
        "sparse",
        "meta",
        "dtype",
    ],
)
def test_refused_in_one_sentence(case: str, tmp_path: Path) -> None:
    path, expected = refused(tmp_path / "made")[case]
    checkpoint(tmp_path / "src", {"pytorch_model.bin": path.read_bytes()})
    with pytest.raises(SourceError) as caught:
        open_local(str(tmp_path / "src"))
    assert expected in caught.value.message
    assert caught.value.message.startswith("pytorch_model.bin")
    assert "\n" not in caught.value.message
    assert not (tmp_path / "made" / "ran").exists()


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_plain_pickle_is_not_executed(protocol: int, tmp_path: Path) -> None:
    data = pickle.dumps({"a": Evil(tmp_path / "ran")}, protocol)
    checkpoint(tmp_path / "src", {"pytorch_model.bin": data})
    with pytest.raises(SourceError) as caught:
        open_local(str(tmp_path / "src"))
    assert "\n" not in caught.value.message
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("damage", ["empty", "text", "random", "half", "tail"])
def test_damaged(damage: str, tmp_path: Path) -> None:
    whole = save(tmp_path / "whole", weights()).read_bytes()
    data = {"empty": b"", "text": b"hello world\n", "random": os.urandom(999)}
    data |= {"half": whole[: len(whole) // 2], "tail": whole[:-9]}
    checkpoint(tmp_path / "src", {"pytorch_model.bin": data[damage]})
    with pytest.raises(SourceError) as caught:
        open_local(str(tmp_path / "src"))
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_training_state_of_specforge(tmp_path: Path) -> None:
    state = {
        "draft_state_dict": {"fc.weight": torch.randn(2, 6).bfloat16(), "d2t": torch.arange(4)},
        "global_step": 7,
        "strategy": "peagle",
        "peagle_mask_token_id": 128002,
        "peagle_down_sample_ratio": 0.25,
        "replicated_optimizer_state": {"state": {0: {"exp_avg": torch.randn(2, 6)}}},
    }
    save(tmp_path / "training_state.pt", state)
    save(tmp_path / "training_state_rank0.pt", {"rng": torch.ones(3)})
    opened = open_local(str(tmp_path))
    assert opened.form == "side files"
    assert opened.config == {}
    assert list(opened.tensors) == ["fc.weight", "d2t"]
    assert opened.weight_files == ("training_state.pt",)
    assert opened.side_data == {
        "global_step": 7,
        "strategy": "peagle",
        "peagle_mask_token_id": 128002,
        "peagle_down_sample_ratio": 0.25,
    }
    assert opened.notes == ("training_state.pt: replicated_optimizer_state not read",)


META = {"epoch": 1, "global_step": 10}


@pytest.mark.parametrize("name", ["eagle_meta.pt", "eagle3_meta.pt"])
def test_draft_model_of_automodel(name: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, {})
    save(tmp_path / "draft_model.pt", {"model.fc.weight": torch.ones(2, 6)})
    mask = torch.tensor([True, False, True, False])
    save(tmp_path / name, {**META, "selected_token_ids": torch.tensor([0, 2]), "mask": mask})
    opened = open_local(str(tmp_path))
    assert opened.form == "side files"
    assert opened.config == {"model_type": "llama"}
    assert list(opened.tensors) == ["model.fc.weight"]
    assert opened.side_data == {
        **META,
        "selected_token_ids": [0, 2],
        "mask": [True, False, True, False],
    }


@pytest.mark.parametrize("named", ["", "model"])
def test_side_file_above_the_model_directory(named: str, tmp_path: Path) -> None:
    checkpoint(tmp_path / "model")
    save(tmp_path / "eagle_meta.pt", {**META, "selected_token_ids": torch.tensor([5])})
    opened = open_local(str(tmp_path / named))
    assert opened.form == "safetensors"
    assert opened.side_data["selected_token_ids"] == [5]
    assert dict(opened.side_data) == {**META, "selected_token_ids": [5]}
    json.dumps(dict(opened.side_data))


def test_a_large_tensor_is_no_plain_value(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    value = {
        "big": torch.zeros(1_000_001, dtype=torch.int8),
        "f": torch.zeros(3),
        "s": torch.tensor(0.5),
    }
    save(tmp_path / "eagle_meta.pt", value)
    assert dict(open_local(str(tmp_path)).side_data) == {"s": 0.5}
