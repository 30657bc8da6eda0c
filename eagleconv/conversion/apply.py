"""Apply a plan: write the output directory, or nothing."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from eagleconv import __version__
from eagleconv.checkpoint.checkpoint import TensorInfo, TensorReader
from eagleconv.checkpoint.json_file import dump_json
from eagleconv.checkpoint.local import CONFIG, MANIFEST
from eagleconv.checkpoint.manifest import FileRecord, verify_files, write_records
from eagleconv.checkpoint.writer import OutputDirectory
from eagleconv.conversion.plan import Plan
from eagleconv.drafter.facts import AuxLayers
from eagleconv.drafter.read import Drafter, read_drafter
from eagleconv.errors import ConversionError

#: Weights and trainers' states that are not carried into an output; the rest of the files is.
_NOT_CARRIED = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".index.json", ".gguf", ".py")


@dataclass(frozen=True, slots=True)
class Upgraded:
    """What an upgrade did.

    Attributes:
        destination: The directory written; empty for a dry run.
        already: True where the source was in the layout already and was copied as it is.
        plan: The plan.
        drafter: The source, understood.
        not_carried: Files of the source that are not in the output.
        target: The recorded fingerprint of the target, or None.
    """

    destination: str
    already: bool
    plan: Plan
    drafter: Drafter
    not_carried: tuple[str, ...]
    target: Mapping[str, Any] | None = None


def carried_files(drafter: Drafter) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the files carried along (README, licence, tokenizer, ...) and those left behind."""
    names = drafter.checkpoint.other_files
    left = tuple(n for n in names if n.endswith(_NOT_CARRIED))
    return tuple(n for n in names if n not in left), left


def apply(
    drafter: Drafter,
    plan: Plan,
    destination: str,
    progress: Callable[[int], None] | None = None,
    on_written: Callable[[], None] | None = None,
    target: Mapping[str, Any] | None = None,
) -> Upgraded:
    """Write the plan's output.

    Args:
        drafter: The source, understood.
        plan: What to write.
        destination: The directory; it must not exist.
        progress: Called with the number of bytes of each piece written.
        on_written: Called the moment the output is in place.
        target: What eagleconv.json records of the target (`target_record`).

    Raises:
        ConversionError: It cannot be written, or reads back as another drafter. Nothing is left.
    """
    checkpoint = drafter.checkpoint
    carried, left = carried_files(drafter)
    already = not plan.edits and checkpoint.form == "safetensors"
    if checkpoint.manifest is not None and not already:
        # What eagleconv.json says of the facts holds for these bytes only if they are its bytes.
        problems = verify_files(checkpoint.root, checkpoint.manifest)
        if problems:
            raise ConversionError(
                f"{checkpoint.source} is not what its eagleconv.json describes: {problems[0]}",
                "remove eagleconv.json to treat it as an unknown file",
            )
    with OutputDirectory(destination, source=checkpoint.root, progress=progress) as output:
        if already and checkpoint.manifest is not None:
            for name in (CONFIG, *checkpoint.weight_files, *carried):
                output.add_file(name, os.path.join(checkpoint.root, name))
            with open(os.path.join(checkpoint.root, MANIFEST), "rb") as file:
                manifest = file.read()
            if target != checkpoint.manifest.get("target"):
                manifest = dump_json({**checkpoint.manifest, "target": target})
            _check_copy(output, checkpoint.manifest)
            output.commit(lambda records: manifest, on_written)
            return Upgraded(destination, True, plan, drafter, left, target)
        output.add_bytes(CONFIG, dump_json(plan.config))
        entries: list[Any] = []
        for name, stored in plan.tensors.items():
            if stored is None:
                tensor = plan.derived[name]
                entries.append((name, tensor.dtype, tensor.shape, tensor.data))
            else:
                info = checkpoint.tensors[stored]
                entries.append((name, info.dtype, info.shape, (checkpoint.reader, info)))
        metadata = {k: v for k, v in checkpoint.metadata.items() if k != "format"}
        output.add_tensors(entries, {"format": "pt", **metadata})
        for name in carried:
            output.add_file(name, os.path.join(checkpoint.root, name))
        output.commit(
            lambda records: dump_json(manifest_of(drafter, plan, records, target)), on_written
        )
    return Upgraded(destination, already, plan, drafter, left, target)


def _check_copy(output: OutputDirectory, manifest: Mapping[str, Any]) -> None:
    recorded = manifest["files"]
    for name, record in output.records.items():
        if name in recorded and recorded[name]["sha256"] != record.sha256:
            raise ConversionError(
                f"{name} has other bytes than eagleconv.json records",
                "run `eagleconv verify`, or remove eagleconv.json to treat it as an unknown file",
            )


def check_reread(drafter: Drafter, plan: Plan) -> None:
    """Read what the plan would write and hold its facts against the source's.

    Raises:
        ConversionError: They differ, which is a defect of this tool.
    """
    source = drafter.checkpoint
    stored = {
        name: (
            TensorInfo(
                name,
                plan.derived[name].dtype,
                plan.derived[name].shape,
                len(plan.derived[name].data),
                "",
                -1,
            )
            if origin is None
            else replace(source.tensors[origin], name=name)
        )
        for name, origin in plan.tensors.items()
    }
    reader = _Planned(source.reader, plan)
    again = replace(
        drafter.checkpoint,
        config=plan.config,
        tensors=stored,
        reader=reader,
        manifest={"aux_layers": aux_record(plan)},
    )
    spec = read_drafter(again, target=drafter.target).spec()
    if spec != plan.spec:
        before, after = plan.spec.values(), spec.values()
        wrong = [k for k in before if before[k] != after[k]]
        raise ConversionError(
            f"the output would read back differently: {', '.join(wrong)}", "please report this"
        )


class _Planned:
    """Gives the bytes of the output before it is written: renamed tensors, and derived ones."""

    def __init__(self, reader: TensorReader, plan: Plan) -> None:
        self._reader, self._plan = reader, plan

    def chunks(self, tensor: TensorInfo, size: int) -> Iterator[memoryview]:
        """Yield the bytes of one output tensor."""
        origin = self._plan.tensors[tensor.name]
        if origin is None:
            yield memoryview(self._plan.derived[tensor.name].data)
        else:
            yield from self._reader.chunks(replace(tensor, name=origin), size)

    def read_into(self, tensor: TensorInfo, start: int, buffer: memoryview) -> None:
        """Fill a buffer from one output tensor."""
        origin = self._plan.tensors[tensor.name]
        if origin is None:
            buffer[:] = self._plan.derived[tensor.name].data[start : start + len(buffer)]
        else:
            self._reader.read_into(replace(tensor, name=origin), start, buffer)

    def close(self) -> None:
        """Nothing: the source closes its own reader."""


def aux_record(plan: Plan) -> dict[str, Any]:
    """Return the manifest's record of the taps."""
    aux: AuxLayers = plan.spec.aux
    text = {
        "default": "default rule (2, n//2, n-3)",
        "last": "the last hidden state",
        "explicit": "boundaries: decoder layers already run",
    }[aux.rule]
    return {
        "rule": aux.rule,
        "text": text,
        "boundaries": None if aux.boundaries is None else list(aux.boundaries),
    }


def manifest_of(
    drafter: Drafter,
    plan: Plan,
    records: Mapping[str, FileRecord],
    target: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the content of eagleconv.json."""
    source = drafter.checkpoint.source
    name = source if drafter.checkpoint.revision else os.path.basename(os.path.abspath(source))
    facts = {}
    for key, fact in drafter.facts.items():
        value = fact.value
        if hasattr(value, "__dataclass_fields__"):
            value = asdict(value)
        facts[key] = {"value": value, "origin": fact.origin, "why": fact.why}
    return {
        "schema_version": 1,
        "tool": {"name": "eagleconv", "version": __version__},
        "source": {"name": name, "revision": drafter.checkpoint.revision},
        "mode": "layout",
        "before": {"layout": " / ".join(drafter.layout_names), "variant": drafter.variant},
        "after": {"layout": "eagle-3.1", "variant": drafter.variant},
        "aux_layers": aux_record(plan),
        "facts": facts,
        "edits": [asdict(edit) for edit in plan.edits],
        "tensors": dict(plan.tensors),
        "files": write_records(records),
        **({"target": dict(target)} if target else {}),
    }
