"""What `speculators convert` and `eagleconv upgrade` make of the same drafters, in one run.

    benchmarks/install_speculators.sh
    python -m benchmarks.peers [--speculators .venv-speculators/bin/speculators]

Four small made drafters go through both tools, with the same target, twice. A tensor is *missing*
where its bytes are in no tensor of the output, *foreign* where an output tensor has the bytes of
no tensor of the source, and *random* where it also differs between the two runs. A *claim* is a
fact the output's config states and its tensors contradict.

Exits with 1 where eagleconv loses or invents anything, or refuses an undamaged drafter; with 2
where a tool is not installed.
"""

import argparse
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagleconv.drafter.facts import AuxLayers, Rope
from eagleconv.drafter.layouts import LAYOUTS
from fixtures.build import rename
from tests.drafters import make_spec, write_drafter

ROOT = Path(__file__).resolve().parent.parent
THETA = 500000.0
TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 160,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": THETA,
}
Digests = dict[str, str]


@dataclass(frozen=True)
class Input:
    """One drafter both tools get.

    Attributes:
        name: What is special about it.
        layout: Layout it is written in.
        facts: Changes to the tiny llama EAGLE-3 drafter.
        config: Config keys set after writing; None removes a key.
        renamed: Stored tensor and its new name; such a drafter should be refused.
    """

    name: str
    layout: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    renamed: tuple[str, str] | None = None


INPUTS = (
    Input(
        "EAGLE 3.1 with fc_norm",
        "torchspec",
        {"input_norm": "per_aux", "feedback": "post_norm"},
    ),
    Input(
        "two layers",
        "eagle-3.1",
        {"num_layers": 2, "aux": AuxLayers(3, (2, 4, 5), "explicit")},
    ),
    Input(
        "base in rope_parameters only",
        "torchspec",
        config={
            "rope_theta": None,
            "rope_scaling": None,
            "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
        },
    ),
    Input(
        "gate_proj renamed to gate",
        "torchspec",
        renamed=("midlayer.mlp.gate_proj.weight", "midlayer.mlp.gate.weight"),
    ),
)


def make(item: Input, directory: Path) -> Path:
    """Write one input."""
    (layout,) = (x for x in LAYOUTS if x.name == item.layout)
    spec = make_spec(rope=Rope(THETA, None), **item.facts)
    write_drafter(directory, spec, layout, seed=1)
    path = directory / "config.json"
    config = json.loads(path.read_text()) | item.config
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}, indent=2))
    if item.renamed:
        rename(*item.renamed)(directory)
    return directory


def parts(file: Path) -> tuple[dict[str, Any], bytes]:
    """Split a safetensors file into its header and its data."""
    data = file.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def digests(directory: Path) -> Digests:
    """Return tensor -> digest of dtype, shape and bytes."""
    found = {}
    for file in sorted(directory.glob("*.safetensors")):
        header, body = parts(file)
        for name, entry in header.items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                key = f"{entry['dtype']} {entry['shape']} ".encode()
                found[name] = hashlib.sha256(key + body[start:end]).hexdigest()
    return found


def values_of(config: Any, key: str) -> Iterator[Any]:
    """Yield every value of a key, however deep it is."""
    if isinstance(config, dict):
        if key in config:
            yield config[key]
        for value in config.values():
            yield from values_of(value, key)


def false_claims(config: dict[str, Any], names: Digests) -> list[str]:
    """Return what a config states and the tensors contradict."""
    claims = []
    for flag, tensor in (("fc_norm", "fc_norm."), ("norm_before_fc", "input_norm.")):
        if True in values_of(config, flag) and not any(tensor in name for name in names):
            claims.append(f"{flag} true")
    layers = max(values_of(config, "num_hidden_layers"), default=1)
    stored = {name.split("layers.")[1].split(".")[0] for name in names if "layers." in name}
    if layers != max(len(stored), 1):
        claims.append(f"{layers} layers")
    return claims


@dataclass(frozen=True)
class Outcome:
    """What a tool made of an input.

    Attributes:
        code: Exit code.
        seconds: Wall time of the first run.
        written: Whether there is an output.
        missing: Tensors of the source whose bytes are gone.
        foreign: Tensors of the output whose bytes the source has not.
        random: Those of them that differ between two runs.
        theta: Bases in the output's config.
        claims: What the config states and the tensors contradict.
    """

    code: int
    seconds: float
    written: bool
    missing: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    random: tuple[str, ...] = ()
    theta: tuple[float, ...] = ()
    claims: tuple[str, ...] = ()

    @property
    def lossless(self) -> bool:
        """Whether the output has everything the source has, and nothing else."""
        lost = self.missing or self.foreign or self.claims
        return self.code == 0 and self.written and not lost and set(self.theta) == {THETA}

    @property
    def refused(self) -> bool:
        """Whether the tool failed and left nothing."""
        return self.code != 0 and not self.written


def convert(source: Path, folder: Path, command: Callable[[Path], list[str]]) -> Outcome:
    """Run a tool twice on an input and compare what it writes."""
    outputs = [folder / "first", folder / "second"]
    codes, times = [], []
    for output in outputs:
        begin = time.perf_counter()
        done = subprocess.run(
            command(output),
            capture_output=True,
            cwd=folder.parent,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)},
        )
        times.append(time.perf_counter() - begin)
        codes.append(done.returncode)
    written = outputs[0].exists()
    if not written:
        return Outcome(codes[0], times[0], False)
    before, after, again = (digests(d) for d in (source, *outputs))
    config = json.loads((outputs[0] / "config.json").read_text())
    known, kept = set(before.values()), set(after.values())
    foreign = tuple(n for n, digest in after.items() if digest not in known)
    return Outcome(
        code=codes[0],
        seconds=times[0],
        written=True,
        missing=tuple(n for n, digest in before.items() if digest not in kept),
        foreign=foreign,
        random=tuple(n for n in foreign if after[n] != again.get(n)),
        theta=tuple(sorted(set(values_of(config, "rope_theta")))),
        claims=tuple(false_claims(config, after)),
    )


def row(tool: str, done: Outcome) -> str:
    """Return one line of the table."""
    if done.written:
        theta = ", ".join(f"{value:g}" for value in done.theta) or "none"
        cells = [str(len(done.missing)), str(len(done.foreign)), str(len(done.random))]
        cells += [theta, ", ".join(done.claims) or "none"]
    else:
        cells = ["no output", "", "", "", ""]
    return "| " + " | ".join([tool, str(done.code), *cells, f"{done.seconds:.1f}"]) + " |"


def main() -> int:
    """Run both tools, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--speculators", type=Path, default=ROOT / ".venv-speculators" / "bin" / "speculators"
    )
    options = parser.parse_args()
    peer = options.speculators.absolute()
    if not peer.exists():
        print(f"{peer} is not there: run benchmarks/install_speculators.sh", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="eagleconv-peers-"))
    failed = []
    try:
        target = folder / "target"
        target.mkdir()
        (target / "config.json").write_text(json.dumps(TARGET, indent=2))
        for number, item in enumerate(INPUTS):
            source = make(item, folder / f"input-{number}")
            speculators = [str(peer), "convert", str(source), "--algorithm", "eagle3"]
            speculators += ["--verifier", str(target), "--validate-device", "cpu"]
            ours = [sys.executable, "-m", "eagleconv", "upgrade", str(source)]
            ours += ["--target", str(target)]
            tools = {
                "speculators convert": lambda out, c=speculators: [*c, "--output-path", str(out)],
                "eagleconv upgrade": lambda out, c=ours: [*c, "-o", str(out)],
            }
            print(f"\n{item.name} ({len(digests(source))} tensors, rope theta {THETA:g})\n")
            print("| tool | exit | missing | foreign | random | rope theta | false claims | s |")
            print("|---|---|---|---|---|---|---|---|")
            lost: list[str] = []
            for tool, command in tools.items():
                place = folder / f"{tool.split()[0]}-{number}"
                place.mkdir()
                done = convert(source, place, command)
                print(row(tool, done), flush=True)
                lost += [f"- {tool}, missing: {name}" for name in done.missing]
                lost += [f"- {tool}, foreign: {name}" for name in done.foreign]
            if lost:
                print("\n" + "\n".join(lost), flush=True)
            if not (done.lossless or (item.renamed and done.refused)):
                failed.append(item.name)
    finally:
        shutil.rmtree(folder)
    for name in failed:
        print(f"eagleconv did not carry: {name}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
