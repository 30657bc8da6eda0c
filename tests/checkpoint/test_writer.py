"""The atomic writer: what it writes, and what it leaves when it does not."""

import errno
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors
from checkpoint_files import SMALL, checkpoint, model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagleconv.checkpoint import copy_stream, work_directory, writer
from eagleconv.checkpoint.dtypes import BITS, nbytes
from eagleconv.checkpoint.json_file import dump_json
from eagleconv.checkpoint.local import open_local
from eagleconv.checkpoint.manifest import FileRecord, verify_files, write_records
from eagleconv.checkpoint.writer import OutputDirectory
from eagleconv.errors import ConversionError, EagleconvError, SourceError

#: One tensor of every dtype, and the shapes that loops forget.
KINDS: dict[str, tuple[str, list[int]]] = {
    **{f"t.{dtype}": (dtype, [3, 8]) for dtype in BITS},
    "odd": ("BOOL", [7]),
    "odd.f16": ("F16", [1]),
    "scalar": ("I64", []),
    "empty": ("BF16", [0, 4]),
    "half": ("F4", [2]),
}


@pytest.fixture(params=["unnamed", "named", "direct"])
def file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run with files that have no name until commit, without such files, and past the cache."""
    if request.param == "direct":
        monkeypatch.setattr(copy_stream, "DIRECT_FROM", 1)
        monkeypatch.setattr(copy_stream, "PIECE", 1 << 20)
    elif request.param == "named":
        monkeypatch.setattr(writer, "can_be_unnamed", lambda parent: False)
    elif not writer.can_be_unnamed("/tmp"):
        pytest.skip("this file system has no O_TMPFILE")
    return str(request.param)


def manifest(records: Mapping[str, FileRecord]) -> bytes:
    return dump_json({"files": write_records(records)})


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def read_library(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    found = safetensors.deserialize(path.read_bytes())
    return {name: (t["dtype"], t["shape"], bytes(t["data"])) for name, t in found}


def filler(size: int, seed: int = 0) -> bytes:
    return hashlib.shake_128(b"%d" % seed).digest(size)


def test_round_trip_of_every_dtype(tmp_path: Path, file_system: str) -> None:
    source = checkpoint(tmp_path / "src", {"model.safetensors": model(KINDS), "vocab/v.txt": b"v"})
    opened = open_local(str(source))
    seen: list[int] = []
    with OutputDirectory(str(tmp_path / "out"), str(source), seen.append) as output:
        record = output.add_file("vocab/v.txt", str(source / "vocab" / "v.txt"))
        output.add_bytes("config.json", b'{"a": 1}\n')
        written = output.add_tensors(
            [(t.name, t.dtype, t.shape, (opened.reader, t)) for t in opened.tensors.values()],
            {"made": "here"},
        )
        assert not (tmp_path / "out").exists()
        output.commit(manifest)
    assert written == ("model.safetensors",)
    assert record == FileRecord(hashlib.sha256(b"v").hexdigest(), 1)
    assert names(tmp_path) == {"src", "out"}
    assert names(tmp_path / "out") == {
        "vocab",
        "config.json",
        "model.safetensors",
        "eagleconv.json",
    }
    assert read_library(tmp_path / "out" / "model.safetensors") == read_library(
        source / "model.safetensors"
    )
    parsed = json.loads((tmp_path / "out" / "eagleconv.json").read_bytes())
    assert verify_files(str(tmp_path / "out"), parsed) == []
    assert set(parsed["files"]) == {"vocab/v.txt", "config.json", "model.safetensors"}
    assert sum(seen) == sum(p.stat().st_size for p in (tmp_path / "out").rglob("*") if p.is_file())
    again = open_local(str(tmp_path / "out"))
    assert again.metadata == {"format": "pt", "made": "here"}
    assert {n: again.read(n) for n in KINDS} == {n: opened.read(n) for n in KINDS}


def test_wide_dtypes_come_first_and_start_where_they_can_be_viewed(tmp_path: Path) -> None:
    sizes = {"a": ("U8", [3]), "b": ("F16", [3]), "c": ("I64", [1]), "d": ("F32", [3])}
    sizes |= {"e": ("F16", [1]), "f": ("BOOL", [5]), "g": ("I64", [2])}
    with OutputDirectory(str(tmp_path / "out")) as output:
        output.add_tensors(
            [(n, d, tuple(s), bytes(nbytes(d, tuple(s)) or 0)) for n, (d, s) in sizes.items()], {}
        )
        output.commit(manifest)
    tensors = open_local_tensors(tmp_path / "out")
    assert list(tensors) == ["c", "g", "d", "b", "e", "a", "f"]
    for tensor in tensors.values():
        assert tensor.offset % (BITS[tensor.dtype] // 8) == 0
    header = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert int.from_bytes(header[:8], "little") % 8 == 0


def open_local_tensors(folder: Path) -> Mapping[str, Any]:
    if not (folder / "config.json").exists():
        (folder / "config.json").write_text('{"a": 1}')
    return open_local(str(folder)).tensors


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(st.sampled_from(list(BITS)), st.lists(st.integers(0, 9), max_size=2)), max_size=6
    ),
    st.integers(1, 900),
    st.sampled_from([4096, 8192]),
)
def test_any_tensors_any_shards_any_piece(
    tmp_path_factory: pytest.TempPathFactory,
    shapes: list[tuple[str, list[int]]],
    max_shard: int,
    piece: int,
) -> None:
    root = tmp_path_factory.mktemp("any")
    wanted = {}
    for number, (dtype, shape) in enumerate([*shapes, ("U8", [1])]):
        full = (*shape, 8)
        wanted[f"t{number}"] = (dtype, list(full), filler(nbytes(dtype, full) or 0, number))
    old = copy_stream.PIECE
    copy_stream.PIECE = piece
    try:
        with OutputDirectory(str(root / "out")) as output:
            entries = [(n, d, tuple(s), b) for n, (d, s, b) in wanted.items()]
            files = output.add_tensors(entries, {}, max_shard)
            output.commit(manifest)
    finally:
        copy_stream.PIECE = old
    found: dict[str, Any] = {}
    for file in files:
        if file.endswith(".safetensors"):
            tensors = read_library(root / "out" / file)
            assert len(tensors) == 1 or sum(len(t[2]) for t in tensors.values()) <= max_shard
            assert not found.keys() & tensors.keys()
            found |= tensors
    assert found == wanted
    assert set(open_local_tensors(root / "out")) == set(wanted)


def test_shards_and_index(tmp_path: Path) -> None:
    data = {f"t{i}": filler(100, i) for i in range(5)}
    with OutputDirectory(str(tmp_path / "out")) as output:
        entries = [(name, "U8", (100,), value) for name, value in data.items()]
        files = output.add_tensors(entries, {}, max_shard_bytes=250)
        output.commit(manifest)
    assert files == (
        "model-00001-of-00003.safetensors",
        "model-00002-of-00003.safetensors",
        "model-00003-of-00003.safetensors",
        "model.safetensors.index.json",
    )
    index = json.loads((tmp_path / "out" / files[-1]).read_bytes())
    assert index["metadata"] == {"total_size": 500}
    assert index["weight_map"] == {f"t{i}": files[i // 2] for i in range(5)}
    assert read_library(tmp_path / "out" / files[2])["t4"] == ("U8", [100], data["t4"])


def test_umask_and_mode_of_an_empty_directory_are_kept(tmp_path: Path, file_system: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o770)
    old = os.umask(0o027)
    try:
        for name in ("out", "new"):
            with OutputDirectory(str(tmp_path / name)) as output:
                output.add_bytes("a", b"a")
                output.commit(manifest)
    finally:
        os.umask(old)
    modes = [(tmp_path / n).stat().st_mode & 0o777 for n in ("out", "new", "out/a", "new/a")]
    assert [oct(mode) for mode in modes] == ["0o770", "0o750", "0o640", "0o640"]


# --- destinations -----------------------------------------------------------------------------


def file_there(root: Path) -> str:
    (root / "out").write_text("mine")
    return "exists and is not a directory"


def files_in_it(root: Path) -> str:
    (root / "out").mkdir()
    (root / "out" / ".mine").write_text("mine")
    return "exists and is not empty"


def link_to_nothing(root: Path) -> str:
    os.symlink(root / "gone", root / "out")
    return "exists and is not a directory"


def link_to_empty(root: Path) -> str:
    (root / "real").mkdir()
    os.symlink(root / "real", root / "out")
    return "exists and is not a directory"


@pytest.mark.parametrize("make", [file_there, files_in_it, link_to_nothing, link_to_empty])
def test_destination_that_exists_is_left_alone(make: Callable[[Path], str], tmp_path: Path) -> None:
    said = make(tmp_path)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with (
        pytest.raises(ConversionError, match=said) as caught,
        OutputDirectory(str(tmp_path / "out")),
    ):
        pytest.fail("it was entered")
    assert caught.value.exit_code == 4
    assert caught.value.hint
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("destination", "said"),
    [
        ("src", "inside the source"),
        ("src/out", "inside the source"),
        ("link/out", "inside the source"),
        ("src/../src/x", "inside the source"),
        ("gone/out", "is not a directory"),
        ("src/config.json/out", "is not a directory"),
        ("/", "cannot be an output"),
        ("x" * 250, "cannot be written"),
    ],
)
def test_destination_that_cannot_be(destination: str, said: str, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "src")
    os.symlink(source, tmp_path / "link")
    with (
        pytest.raises(ConversionError, match=said),
        OutputDirectory(os.path.join(tmp_path, destination), str(source)),
    ):
        pytest.fail("it was entered")
    assert names(tmp_path) == {"src", "link"}


def test_source_name_as_prefix_is_not_inside(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "src")
    with OutputDirectory(str(tmp_path / "src-3.1"), str(source)) as output:
        output.add_bytes("a", b"")
        output.commit(manifest)
    assert names(tmp_path) == {"src", "src-3.1"}


def test_current_directory_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConversionError, match="current directory"), OutputDirectory("."):
        pytest.fail("it was entered")


# --- nothing is left --------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, SourceError])
def test_any_exception_leaves_nothing(
    error: type[BaseException], tmp_path: Path, file_system: str
) -> None:
    (tmp_path / "keep").mkdir()

    def write() -> None:
        with OutputDirectory(str(tmp_path / "keep")) as output:
            output.add_bytes("sub/a", b"a" * 100)
            output.add_tensors([("t", "U8", (9,), b"123456789")], {})
            raise error("stop")

    with pytest.raises(error):
        write()
    assert names(tmp_path) == {"keep"}
    assert names(tmp_path / "keep") == set()
    assert threading.active_count() == 1


def test_without_commit_nothing_is_left(tmp_path: Path, file_system: str) -> None:
    with OutputDirectory(str(tmp_path / "out")) as output:
        output.add_bytes("a", b"a")
    assert names(tmp_path) == set()


class Reader:
    """A TensorReader that fails, or interrupts, in the middle."""

    def __init__(self, error: BaseException, after: int) -> None:
        self.error, self.after = error, after

    def chunks(self, tensor: Any, size: int) -> Iterator[memoryview]:
        raise NotImplementedError

    def read_into(self, tensor: Any, start: int, buffer: memoryview) -> None:
        if start >= self.after:
            raise self.error

    def close(self) -> None:
        pass


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SourceError("changed"), MemoryError()])
def test_failing_source_leaves_nothing(
    error: BaseException, tmp_path: Path, file_system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_stream, "PIECE", 1 << 20)
    info = open_local(str(checkpoint(tmp_path / "src"))).tensors["a.weight"]
    big = type(info)(info.name, "U8", (5 << 20,), 5 << 20, info.file, 0)
    with (
        pytest.raises(type(error)),
        OutputDirectory(str(tmp_path / "out")) as output,
    ):
        output.add_tensors([("t", "U8", (5 << 20,), (Reader(error, 3 << 20), big))], {})
    assert names(tmp_path) == {"src"}
    assert threading.active_count() == 1


def test_source_that_is_cut_off_meanwhile(tmp_path: Path, file_system: str) -> None:
    source = checkpoint(tmp_path / "src", {"model.safetensors": model({"t": ("U8", [3 << 20])})})
    opened = open_local(str(source))
    os.truncate(source / "model.safetensors", 2 << 20)
    info = opened.tensors["t"]
    with (
        pytest.raises(SourceError, match="is shorter than"),
        OutputDirectory(str(tmp_path / "out")) as output,
    ):
        output.add_tensors([("t", "U8", info.shape, (opened.reader, info))], {})
    assert names(tmp_path) == {"src"}


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "disk full while writing model.safetensors"),
        (errno.EDQUOT, "disk full while writing model.safetensors"),
        (errno.EIO, "model.safetensors cannot be written: input/output error"),
        (errno.EFBIG, "larger than the file system"),
    ],
)
@pytest.mark.parametrize("call", ["pwrite", "fsync", "preadv", "ftruncate"])
def test_disk_errors(
    call: str,
    number: int,
    said: str,
    tmp_path: Path,
    file_system: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = getattr(os, call)
    calls = 0

    def failing(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if call != "pwrite" or calls > 3:
            raise OSError(number, os.strerror(number))
        return real(*args)

    monkeypatch.setattr(os, call, failing)
    monkeypatch.setattr(copy_stream, "PIECE", 1 << 20)
    size = 6 << 20
    with (
        pytest.raises(ConversionError, match=said) as caught,
        OutputDirectory(str(tmp_path / "out")) as output,
    ):
        output.add_tensors([("t", "U8", (size,), bytes(size))], {})
    assert "\n" not in caught.value.message
    assert names(tmp_path) == set()
    assert threading.active_count() == 1


def test_short_writes_are_continued(
    tmp_path: Path, file_system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[: len(data) // 3 + 1], at))
    data = filler((3 << 20) + 5)
    with OutputDirectory(str(tmp_path / "out")) as output:
        record = output.add_bytes("a", data)
        output.commit(manifest)
    assert (tmp_path / "out" / "a").read_bytes() == data
    assert record.sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, (5 << 20) + 4097])
def test_sizes_around_a_block_and_a_piece(size: int, tmp_path: Path, file_system: str) -> None:
    data = filler(size)
    with OutputDirectory(str(tmp_path / "out"), read_back=True) as output:
        record = output.add_bytes("a", data)
        output.commit(manifest)
    assert (tmp_path / "out" / "a").read_bytes() == data
    assert record == FileRecord(hashlib.sha256(data).hexdigest(), size)


def test_file_system_that_refuses_direct_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    monkeypatch.setattr(copy_stream, "DIRECT_FROM", 1)
    real = os.pwrite

    def refusing(fd: int, data: memoryview, at: int) -> int:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "refused")
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", refusing)
    with OutputDirectory(str(tmp_path / "out")) as output:
        output.add_bytes("a", filler(9999))
        output.commit(manifest)
    assert (tmp_path / "out" / "a").read_bytes() == filler(9999)


@pytest.mark.parametrize(("place", "read_back"), [(0, False), (-1, False), (500_000, True)])
def test_a_flipped_bit_on_the_way_to_the_disk_is_found(
    place: int,
    read_back: bool,
    tmp_path: Path,
    file_system: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copy_stream, "PIECE", 1 << 20)
    real = os.pwrite

    def flipping(fd: int, data: memoryview, at: int) -> int:
        if at < 1 << 20:
            return real(fd, data, at)
        import mmap

        changed = mmap.mmap(-1, len(data))  # aligned, as direct writes need it
        changed[:] = bytes(data)
        changed[place] ^= 1
        return real(fd, changed, at)

    monkeypatch.setattr(os, "pwrite", flipping)
    with (
        pytest.raises(ConversionError, match="reads back differently"),
        OutputDirectory(str(tmp_path / "out"), read_back=read_back) as output,
    ):
        output.add_bytes("a", filler(3 << 20))
    assert names(tmp_path) == set()


def test_a_header_that_differs_on_the_disk_is_found(tmp_path: Path, file_system: str) -> None:
    with OutputDirectory(str(tmp_path / "out")) as output:
        output.add_tensors([("t", "U8", (9,), b"123456789")], {})
        asked = output._tensor_files["model.safetensors"]
        entry = asked.entries[0]._replace(shape=(3, 3))
        output._tensor_files["model.safetensors"] = replace(asked, entries=(entry,))
        with pytest.raises(ConversionError, match="does not hold the tensors"):
            output.commit(manifest)
    assert names(tmp_path) == set()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (("t", "F32", (2,), b"1234"), "has 4 bytes"),
        (("t", "F4", (3,), b"12"), "no whole number"),
        (("t", "F9", (1,), b"1"), "dtype 'F9'"),
        (("u", "U8", (1,), b"1"), "twice"),
        (("__metadata__", "U8", (1,), b"1"), "twice or at all"),
    ],
)
def test_entries_that_contradict_themselves(entry: Any, said: str, tmp_path: Path) -> None:
    with (
        pytest.raises(ConversionError, match=said),
        OutputDirectory(str(tmp_path / "out")) as output,
    ):
        output.add_tensors([("u", "U8", (1,), b"1"), entry], {})
    assert names(tmp_path) == set()


@pytest.mark.parametrize("name", ["a", "", "/a", "../a", "b/../a", "b//a", "./a"])
def test_names_that_cannot_be_added(name: str, tmp_path: Path) -> None:
    with OutputDirectory(str(tmp_path / "out")) as output:
        output.add_bytes("a", b"")
        with pytest.raises(ConversionError, match="cannot be added"):
            output.add_bytes(name, b"")
    assert names(tmp_path) == set()


def test_an_empty_output_is_not_committed(tmp_path: Path) -> None:
    with (
        pytest.raises(ConversionError, match="without files"),
        OutputDirectory(str(tmp_path / "out")) as output,
    ):
        output.commit(manifest)
    assert names(tmp_path) == set()


def test_many_files_need_few_descriptors(tmp_path: Path) -> None:
    with OutputDirectory(str(tmp_path / "out")) as output:
        for number in range(300):
            output.add_bytes(f"f{number}", b"%d" % number)
            assert len(output._unnamed) < 128
        output.commit(manifest)
    assert len(names(tmp_path / "out")) == 301


# --- other processes --------------------------------------------------------------------------


def test_destination_that_appears_meanwhile_is_left_alone(tmp_path: Path, file_system: str) -> None:
    for appear in (lambda p: p.write_text("mine"), lambda p: (p.mkdir(), (p / "m").mkdir())):
        out = tmp_path / f"out{len(names(tmp_path))}"
        with OutputDirectory(str(out)) as output:
            output.add_bytes("a", b"")
            appear(out)
            with pytest.raises(ConversionError, match="appeared while") as caught:
                output.commit(manifest)
        assert caught.value.hint
        assert out.is_file() or names(out) == {"m"}
    assert names(tmp_path) == {"out0", "out1"}


def test_leftovers_are_removed_live_ones_are_not(tmp_path: Path, file_system: str) -> None:
    stale = tmp_path / ".out.eagleconv-0123456789abcdef"
    other = tmp_path / ".other.eagleconv-0123456789abcdef"
    mine = tmp_path / ".out.eagleconv-mine"
    for folder in (stale, other, mine):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"x")
    live = work_directory.WorkDirectory(str(tmp_path), "out")
    with OutputDirectory(str(tmp_path / "out")) as output:
        output.add_bytes("a", b"")
        output.commit(manifest)
    assert names(tmp_path) == {other.name, mine.name, os.path.basename(live.path), "out"}
    live.remove()
    assert names(tmp_path) == {other.name, mine.name, "out"}


def test_cleaner_between_mkdir_and_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = work_directory._lock
    cleaned = []

    def lock(fd: int) -> bool | None:
        if not cleaned:
            cleaned.append(1)
            work_directory.remove_stale(str(tmp_path), "out")
        return real(fd)

    monkeypatch.setattr(work_directory, "_lock", lock)
    work = work_directory.WorkDirectory(str(tmp_path), "out")
    assert names(tmp_path) == {os.path.basename(work.path)}
    work.remove()
    assert names(tmp_path) == set()


def test_cleaner_does_not_remove_what_was_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = work_directory.WorkDirectory(str(tmp_path), "out")
    Path(work.path, "a").write_text("a")
    real = work_directory._lock

    def lock(fd: int) -> bool | None:
        work.publish(str(tmp_path / "out"))
        return real(fd)

    monkeypatch.setattr(work_directory, "_lock", lock)
    work_directory.remove_stale(str(tmp_path), "out")
    assert names(tmp_path / "out") == {"a"}


def test_two_writers_one_wins(tmp_path: Path, file_system: str) -> None:
    barrier = threading.Barrier(4)
    results: list[str] = []

    def write(number: int) -> None:
        try:
            with OutputDirectory(str(tmp_path / "out")) as output:
                output.add_bytes("who", b"%d" % number)
                barrier.wait()
                output.commit(manifest)
            results.append(str(number))
        except EagleconvError as error:
            results.append(error.message)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [text for text in results if len(text) == 1]
    lost = [text for text in results if "appeared while" in text]
    assert (len(winners), len(lost)) == (1, 3)
    assert names(tmp_path) == {"out"}
    assert (tmp_path / "out" / "who").read_text() == winners[0]


def test_source_is_not_touched(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "src", {"model.safetensors": model(SMALL)})
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in source.iterdir()}
    opened = open_local(str(source))
    with OutputDirectory(str(tmp_path / "out"), str(source)) as output:
        entries = [(t.name, t.dtype, t.shape, (opened.reader, t)) for t in opened.tensors.values()]
        output.add_tensors(entries, {})
        output.commit(manifest)
    assert {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in source.iterdir()} == before
