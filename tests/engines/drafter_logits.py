"""What vLLM's own drafter computes: every call of a real generation, recorded.

    python -m tests.engines.drafter_logits JOBS.json

Each job names a target, a drafter and an output file. The target (tiny, random) and the drafter
are loaded by vLLM as in production: config resolution, architecture rewriting, speculators
adapter, weight loader, shared embeddings. Then a fixed prompt batch is generated greedily while
the drafter's three entry points are watched. Two checkpoints of one drafter must leave the same
tensors behind: aux states in, fused state, fed-back state, logits over the target's vocabulary.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import os
import sys
import tempfile
import time
import traceback
import unittest.mock
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import acceptance, plain_attention

MAX_TOKENS = 12
PROMPT_LENGTHS = (11, 6)


@dataclasses.dataclass(frozen=True)
class Job:
    """One drafter to run next to one target."""

    target: str
    drafter: str
    output: str
    depth: int = 3
    parallel: bool = False
    plain_attention: bool = False  # in every layer, not only where vLLM has no kernel
    prompt_ids: int = 0  # prompts use ids below it; 0: all of the target's


@dataclasses.dataclass(frozen=True)
class Recording:
    """What one run left behind; `error` is the exception when vLLM refused the drafter."""

    tensors: dict[str, Any]
    counters: dict[str, Any]
    outputs: list[list[int]]
    boundaries: dict[str, list[int]]
    error: str | None
    seconds: float


def make_target(directory: Path, hidden_size: int, num_hidden_layers: int, vocab_size: int) -> None:
    """Write a random Llama whose layers all leave a clear mark on the residual stream."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=num_hidden_layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,  # the smallest that vLLM's CPU kernel has
        max_position_embeddings=256,
        initializer_range=0.2,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(hidden_size * 1000 + num_hidden_layers)
    LlamaForCausalLM(config).save_pretrained(directory)


def prompts(vocab_size: int) -> list[list[int]]:
    """Fixed prompts that spread over the vocabulary."""
    return [[(7 + 31 * i * i + 13 * i) % vocab_size for i in range(n)] for n in PROMPT_LENGTHS]


@contextlib.contextmanager
def watched(drafter: Any) -> Iterator[dict[str, Any]]:
    """Record the inputs and outputs of a drafter model while the context is open."""
    tensors: dict[str, Any] = {}
    calls = {"combine": 0, "step": 0, "logits": 0}

    def keep(call: str, **values: Any) -> None:
        number = calls[call]
        calls[call] += 1
        for key, value in values.items():
            tensors[f"{call}.{number:03d}.{key}"] = value.detach().clone().contiguous()

    def combine(hidden_states: Any) -> Any:
        fused = originals["combine_hidden_states"](hidden_states)
        keep("combine", aux=hidden_states, fused=fused)
        return fused

    def forward(input_ids: Any, positions: Any, hidden_states: Any, **others: Any) -> Any:
        before = hidden_states.clone()  # vLLM's fused norms write into their input
        last, fed_back = originals["forward"](
            input_ids=input_ids, positions=positions, hidden_states=hidden_states, **others
        )
        keep("step", ids=input_ids, positions=positions, fed=before, last=last, fed_back=fed_back)
        return last, fed_back

    def compute_logits(hidden_states: Any) -> Any:
        logits = originals["compute_logits"](hidden_states)
        keep("logits", values=logits)
        return logits

    watchers = {
        "combine_hidden_states": combine,
        "forward": forward,
        "compute_logits": compute_logits,
    }
    originals = {name: getattr(drafter, name) for name in watchers}
    for name, watcher in watchers.items():
        setattr(drafter, name, watcher)
    try:
        yield tensors
    finally:
        for name in watchers:
            delattr(drafter, name)


def boundaries(worker: Any) -> dict[str, list[int]]:
    """Boundaries tapped by the V1 model runner (running here) and by the V2 one (GPU default)."""
    from vllm.v1.worker.gpu.spec_decode.eagle import eagle3_utils

    model = worker.model_runner.model
    spec_config = worker.model_runner.speculative_config
    v2 = (
        eagle3_utils.get_eagle3_aux_layers_from_config(spec_config)
        or model.get_eagle3_default_aux_hidden_state_layers()
    )
    return {"v1": list(model.model.aux_hidden_state_layers), "v2": sorted(set(v2))}


def record(job: Job) -> Recording:
    """Start an engine in this process, generate, stop it; refusals are part of the result."""
    import torch
    from vllm import SamplingParams

    # Makes fresh memory NaN: a parameter that no tensor was loaded into cannot pass unnoticed.
    torch.use_deterministic_algorithms(True, warn_only=True)
    begun = time.monotonic()
    vocab_size = job.prompt_ids
    if not vocab_size:
        vocab_size = json.loads(Path(job.target, "config.json").read_text())["vocab_size"]
    engine = None
    try:
        engine = acceptance.start_engine(
            Path(job.target),
            Path(job.drafter),
            job.depth,
            job.parallel,
            max_model_len=128,
            skip_tokenizer_init=True,
            num_gpu_blocks_override=64,
        )
        (taps,) = engine.collective_rpc(boundaries)
        (drafter,) = engine.collective_rpc(lambda worker: worker.model_runner.drafter.model)
        with watched(drafter) as tensors:
            outputs = engine.generate(
                [{"prompt_token_ids": prompt} for prompt in prompts(vocab_size)],
                SamplingParams(
                    temperature=0.0, max_tokens=MAX_TOKENS, ignore_eos=True, detokenize=False
                ),
                use_tqdm=False,
            )
        return Recording(
            tensors,
            acceptance.counters(engine),
            [list(output.outputs[0].token_ids) for output in outputs],
            taps,
            None,
            time.monotonic() - begun,
        )
    except Exception as error:
        traceback.print_exc()
        refusal = f"{type(error).__name__}: {error}"
        return Recording({}, {}, [], {}, refusal, time.monotonic() - begun)
    finally:
        acceptance.stop_engine(engine)


def save(recording: Recording, path: Path) -> None:
    """Write a recording as safetensors; everything but the tensors goes into the metadata."""
    from safetensors.torch import save_file

    facts = dataclasses.asdict(dataclasses.replace(recording, tensors={}))
    save_file(recording.tensors, path, metadata={"facts": json.dumps(facts)})


def load(path: Path) -> Recording:
    """Read what `save` wrote."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        facts = json.loads(file.metadata()["facts"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return Recording(**facts | {"tensors": tensors})


def record_all(jobs: Sequence[Job]) -> list[Recording]:
    """Run all jobs one after another in one process of their own."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "jobs.json")
        file.write_text(json.dumps([dataclasses.asdict(job) for job in jobs]))
        acceptance.start([sys.executable, "-m", "tests.engines.drafter_logits", str(file)])
    return [load(Path(job.output)) for job in jobs]


def difference(one: Recording, other: Recording) -> float:
    """Largest |difference| of any recorded tensor; infinite when shapes or calls differ."""
    import torch

    if one.tensors.keys() != other.tensors.keys() or not one.tensors:
        return float("inf")
    largest = 0.0
    for name, left in one.tensors.items():
        right = other.tensors[name]
        if left.shape != right.shape:
            return float("inf")
        if not torch.equal(left, right):  # equal infinities are equal, NaN never is
            delta = (left.double() - right.double()).abs()
            delta[left == right] = 0.0
            largest = max(
                largest, delta.nan_to_num(nan=float("inf"), posinf=float("inf")).max().item()
            )
    return largest


def is_finite(recording: Recording) -> bool:
    """Whether nothing uninitialised was computed with; only scattered logits hold -inf."""
    return not any(
        tensor.isnan().any() or (name.startswith("step") and tensor.isinf().any())
        for name, tensor in recording.tensors.items()
        if tensor.is_floating_point()
    )


def first_step_difference(one: Recording, other: Recording) -> float:
    """Largest |difference| of the normalised state of the first step, where no error adds up."""
    left, right = (recording.tensors["step.000.last"] for recording in (one, other))
    return (left - right).abs().max().item()


def main() -> None:
    """Command line: run the jobs of a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", type=Path, help="JSON list of jobs")
    given = parser.parse_args()
    os.environ.update(acceptance.ENVIRONMENT)
    for number, fields in enumerate(json.loads(given.jobs.read_text())):
        job = Job(**fields)
        # vLLM collects garbage ten times per engine, which is most of the life of a tiny one.
        with (
            plain_attention.installed(everywhere=job.plain_attention),
            unittest.mock.patch.object(gc, "collect"),
        ):
            recording = record(job)
        save(recording, Path(job.output))
        print(f"job {number}: {job.drafter}: {recording.error or 'ok'} {recording.seconds:.1f} s")


if __name__ == "__main__":
    main()
