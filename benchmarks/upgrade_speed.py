"""Speed and memory of eagleconv against the tools that copy and hash, in one run.

    python benchmarks/upgrade_speed.py [--gib 4] [--runs 5] [--folder DIR] [--only copy|start]

Copy: `eagleconv upgrade` of one checkpoint against `cp` and `openssl dgst -sha256` of its weights,
alternating; the ratio is that of the medians. eagleconv waits until its output is on the disk
(fsync), cp does not. Start: `eagleconv --help` and `eagleconv inspect` against `python -c pass`,
new processes with a warm page cache, with bytecode of every module as an installation has it.
Exits with 1 where a limit is exceeded, with 2 where eagleconv fails.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

#: Limits: ratios, and MiB.
COPY, MEMORY, HELP, INSPECT = 1.0, 150.0, 8.0, 14.0
HEAVY = ("torch", "transformers", "onnx", "onnxruntime", "matplotlib")

Shapes = dict[str, tuple[str, tuple[int, ...]]]


def drafter(gib: float) -> tuple[dict[str, object], Shapes]:
    """Return config and tensors of a llama drafter of about this size.

    Args:
        gib: Size in GiB; the vocabulary is chosen to reach it.
    """
    hidden, inner = (8192, 28672) if gib >= 3 else (4096, 14336) if gib >= 1 else (512, 1024)
    head_dim, kv = 128, 2 if hidden == 512 else 8
    draft_vocab = 32000 if gib >= 1 else 1024
    layer = {
        "self_attn.q_proj": (hidden, 2 * hidden),
        "self_attn.k_proj": (kv * head_dim, 2 * hidden),
        "self_attn.v_proj": (kv * head_dim, 2 * hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
        "hidden_norm": (hidden,),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    shapes: dict[str, tuple[int, ...]] = {f"midlayer.{k}.weight": v for k, v in layer.items()}
    shapes |= {"fc.weight": (hidden, 3 * hidden), "norm.weight": (hidden,)}
    shapes |= {"lm_head.weight": (draft_vocab, hidden)}
    used = sum(2 * elements(shape) for shape in shapes.values()) + 8 * draft_vocab
    vocab = max(draft_vocab, int(gib * 2**30 - used) // (2 * hidden + 1))
    shapes["embed_tokens.weight"] = (vocab, hidden)
    tensors: Shapes = {"d2t": ("I64", (draft_vocab,)), "t2d": ("BOOL", (vocab,))}
    tensors |= {name: ("BF16", shape) for name, shape in shapes.items()}
    config: dict[str, object] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": hidden,
        "target_hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": hidden // head_dim,
        "num_key_value_heads": kv,
        "head_dim": head_dim,
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": 1e-05,
        "rope_theta": 500000.0,
        "rope_scaling": None,
        "max_position_embeddings": 8192,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "vocab_size": vocab,
        "draft_vocab_size": draft_vocab,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]},
        "norm_before_residual": False,
        "use_cache": True,
    }
    return config, tensors


def elements(shape: tuple[int, ...]) -> int:
    """Return the number of elements."""
    count = 1
    for size in shape:
        count *= size
    return count


def make(root: Path, gib: float, seed: int = 0) -> Path:
    """Write the checkpoint: seeded random values below 2, and a d2t with its t2d."""
    config, tensors = drafter(gib)
    root.mkdir(parents=True)
    (root / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    width = {"I64": 8, "BOOL": 1, "BF16": 2}
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + width[dtype] * elements(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    draws = random.Random(seed)
    # The second byte of a little-endian BF16 without its second bit: every exponent below 2**1.
    tame = bytes(byte & 0xBF for byte in range(256))
    draft_vocab, vocab = tensors["d2t"][1][0], tensors["t2d"][1][0]
    step = vocab // draft_vocab
    with open(root / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, (_, shape) in tensors.items():
            if name == "d2t":
                file.write(b"".join(struct.pack("<q", i * step - i) for i in range(draft_vocab)))
            elif name == "t2d":
                kept = (i % step == 0 and i // step < draft_vocab for i in range(vocab))
                file.write(bytes(kept))
            else:
                left = 2 * elements(shape)
                while left:
                    block = bytearray(draws.randbytes(min(left, 8 << 20)))
                    block[1::2] = block[1::2].translate(tame)
                    file.write(block)
                    left -= len(block)
    return root


def timed(call: Callable[[], object]) -> float:
    """Return the seconds a call takes, from a disk that has nothing left to do."""
    os.sync()
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def run(command: list[str]) -> float:
    """Run a command and return its peak memory in MiB without mapped files.

    Raises:
        SystemExit: It fails.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    peak = 0.0
    stop = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not stop.is_set():
            peak = max(peak, unmapped(process.pid))
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, error = process.communicate()
    stop.set()
    watcher.join()
    if process.returncode:
        print(f"{' '.join(command)}: exit {process.returncode}\n{error.decode()}", file=sys.stderr)
        raise SystemExit(2)
    return peak


def unmapped(pid: int) -> float:
    """Return resident MiB of a process that are not pages of files."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    parts = (lines.get("RssAnon"), lines.get("RssShmem"))
    return sum(int(part.split()[0]) for part in parts if part) / 1024


def copy_speed(source: Path, folder: Path, runs: int) -> list[tuple[str, float, float]]:
    """Measure `upgrade` against `cp` and `openssl`; return rows of name, value, limit."""
    weights, copy, out = source / "model.safetensors", folder / "copy.bin", folder / "out"
    upgrade = [sys.executable, "-m", "eagleconv", "upgrade", str(source), "-o", str(out)]
    peaks: list[float] = []
    peer, ours = [], []

    def copy_and_hash() -> None:
        subprocess.run(["cp", weights, copy], check=True)
        subprocess.run(["openssl", "dgst", "-sha256", copy], check=True, stdout=subprocess.DEVNULL)

    for number in range(runs):
        peer.append(timed(copy_and_hash))
        copy.unlink()
        ours.append(timed(lambda: peaks.append(run(upgrade))))
        shutil.rmtree(out)
        print(
            f"run {number + 1}: cp + openssl {peer[-1]:.2f} s, upgrade {ours[-1]:.2f} s", flush=True
        )
    ratio = statistics.median(ours) / statistics.median(peer)
    return [("upgrade / (cp + openssl)", ratio, COPY), ("upgrade, peak MiB", max(peaks), MEMORY)]


def start_speed(source: Path, runs: int) -> list[tuple[str, float, float]]:
    """Measure `--help` and `inspect` against an empty Python; return rows of name, value, limit."""
    commands = {
        "pass": [sys.executable, "-c", "pass"],
        "--help": [sys.executable, "-m", "eagleconv", "--help"],
        "inspect": [sys.executable, "-m", "eagleconv", "inspect", str(source)],
    }
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(source.parent / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, command in commands.items():
            begin = time.perf_counter()
            done = subprocess.run(command, capture_output=True, env=environment)
            if number:  # the first run only compiles
                times[name].append(time.perf_counter() - begin)
            if done.returncode:
                print(f"{' '.join(command)}: {done.stderr.decode()}", file=sys.stderr)
                raise SystemExit(2)
    medians = {name: statistics.median(values) for name, values in times.items()}
    rows = [
        ("--help / python -c pass", medians["--help"] / medians["pass"], HELP),
        ("inspect / python -c pass", medians["inspect"] / medians["pass"], INSPECT),
    ]
    for name in ("--help", "inspect"):
        loaded = heavy_imports(commands[name])
        rows.append((f"{name}, heavy imports {' '.join(loaded)}".strip(), float(len(loaded)), 0.0))
    return rows


def heavy_imports(command: list[str]) -> list[str]:
    """Return which of the heavy packages a command imports."""
    traced = [command[0], "-X", "importtime", *command[1:]]
    lines = subprocess.run(traced, capture_output=True, text=True).stderr.splitlines()
    loaded = {line.rsplit("|", 1)[-1].strip() for line in lines if line.startswith("import time:")}
    return sorted(loaded & set(HEAVY))


def main() -> int:
    """Measure, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=4.0, help="size of the checkpoint")
    parser.add_argument("--runs", type=int, default=5, help="runs of the copy")
    parser.add_argument("--start-runs", type=int, default=20, help="runs of the short commands")
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder by default")
    parser.add_argument("--only", choices=("copy", "start"))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="eagleconv-speed-", dir=options.folder))
    try:
        rows: list[tuple[str, float, float]] = []
        if options.only != "copy":
            small = make(folder / "small", 0.02)
            rows += start_speed(small, options.start_runs)
        if options.only != "start":
            source = make(folder / "source", options.gib)
            rows += copy_speed(source, folder, options.runs)
    finally:
        shutil.rmtree(folder)
    print(f"\n{'measured':<44}{'value':>10}{'limit':>10}")
    for name, value, limit in rows:
        verdict = "" if value <= limit else "  exceeded"
        print(f"{name:<44}{value:>10.2f}{limit:>10.2f}{verdict}")
    return int(any(value > limit for _, value, limit in rows))


if __name__ == "__main__":
    raise SystemExit(main())
