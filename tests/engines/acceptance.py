"""What real vLLM accepts from a drafter: its counters, and the text it produced.

    python -m tests.engines.acceptance TARGET DRAFTER... [-k 3] [-o FILE]

Greedy, float32, CPU. Importing vLLM costs more than a run, so one process measures several
drafters, one engine after the other; `measure` starts that process.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NO_DRAFTER = "none"

# Read by vLLM when it is imported. Threads of two busy cores wait for each other.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}

QUESTIONS = (
    "What causes the tides in the ocean?",
    "Write a short email asking a colleague to move our meeting to Friday.",
    "Explain to a child why the sky is blue.",
    "List three ways to save electricity at home.",
    "What is the difference between a list and a tuple in Python?",
    "Tell me a very short story about a lighthouse keeper and a storm.",
    "How do I cook rice without a rice cooker?",
    "Give me two arguments for and two against working from home.",
    "Summarise how a bicycle stays upright while it is moving.",
    "Translate 'good morning, how are you?' into French and Spanish.",
)


def question_ids(target: Path, questions: Sequence[str] = QUESTIONS) -> list[list[int]]:
    """Each question through the target's chat template, as token ids."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(target)
    texts = (
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
        )
        for question in questions
    )
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]


def start_engine(
    target: Path, drafter: Path | None, depth: int, parallel: bool = False, **options: Any
) -> Any:
    """A vLLM engine in this process; without a drafter it is the target alone."""
    os.environ.update(ENVIRONMENT)
    from vllm import LLM

    if drafter is not None:
        options["speculative_config"] = {
            "method": "eagle3",
            "model": str(drafter),
            "num_speculative_tokens": depth,
            "parallel_drafting": parallel,
        }
    return LLM(
        str(target),
        dtype="float32",
        enforce_eager=True,
        enable_prefix_caching=False,
        disable_log_stats=False,
        **{"max_model_len": 1024, **options},
    )


def counters(engine: Any) -> dict[str, Any]:
    """The speculative counters of an engine since it started, under our own names."""
    found = {metric.name: metric for metric in engine.get_metrics()}

    def value(name: str) -> int:
        metric = found.get(f"vllm:spec_decode_{name}")
        return metric.value if metric else 0

    per_position = found.get("vllm:spec_decode_num_accepted_tokens_per_pos")
    return {
        "num_drafts": value("num_drafts"),
        "num_draft_tokens": value("num_draft_tokens"),
        "num_accepted_tokens": value("num_accepted_tokens"),
        "accepted_per_pos": list(per_position.values) if per_position else [],
    }


def stop_engine(engine: Any) -> None:
    """Free an engine and the process-wide state that it leaves behind."""
    from vllm.distributed import cleanup_dist_env_and_memory

    if engine is not None:
        engine.llm_engine.engine_core.shutdown()
    del engine
    cleanup_dist_env_and_memory()
    gc.collect()


def run(
    target: Path,
    drafter: Path | None,
    depth: int,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    parallel: bool = False,
) -> dict[str, Any]:
    """Generate greedily in this process and report counters and output token ids."""
    from vllm import SamplingParams

    engine = start_engine(target, drafter, depth, parallel)
    try:
        outputs = engine.generate(
            [{"prompt_token_ids": list(prompt)} for prompt in prompts],
            SamplingParams(temperature=0.0, max_tokens=max_tokens),
            use_tqdm=False,
        )
        report = counters(engine)
    finally:
        stop_engine(engine)
    return report | {"outputs": [list(output.outputs[0].token_ids) for output in outputs]}


def measure(
    target: Path,
    drafters: Sequence[Path | None],
    depth: int = 3,
    prompts: Sequence[Sequence[int]] | None = None,
    max_tokens: int = 48,
    parallel: bool = False,
) -> list[dict[str, Any]]:
    """`run` for each drafter, one after another in one process of their own."""
    with tempfile.TemporaryDirectory() as scratch:
        result = Path(scratch, "result.json")
        command = [sys.executable, "-m", "tests.engines.acceptance", str(target)]
        command += [str(drafter) if drafter else NO_DRAFTER for drafter in drafters]
        command += ["-k", str(depth), "--max-tokens", str(max_tokens), "-o", str(result)]
        command += ["--parallel"] if parallel else []
        if prompts is not None:
            file = Path(scratch, "prompts.json")
            file.write_text(json.dumps([list(prompt) for prompt in prompts]))
            command += ["--prompts", str(file)]
        start(command)
        return json.loads(result.read_text())


def start(command: Sequence[str]) -> None:
    """Run a command of this package to its end; its own words are shown only when it fails."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"exit {done.returncode} of {' '.join(command)}\n{done.stdout[-6000:]}")


def main() -> None:
    """Command line: measure drafters and write a JSON list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("drafters", nargs="+", help=f"directories; {NO_DRAFTER}: target alone")
    parser.add_argument("-k", "--depth", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--prompts", type=Path, help="JSON list of lists of token ids")
    parser.add_argument("--parallel", action="store_true", help="P-EAGLE: parallel drafting")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()

    os.environ.update(ENVIRONMENT)
    prompts = json.loads(given.prompts.read_text()) if given.prompts else question_ids(given.target)
    reports = [
        run(
            given.target,
            None if drafter == NO_DRAFTER else Path(drafter),
            given.depth,
            prompts,
            given.max_tokens,
            given.parallel,
        )
        for drafter in given.drafters
    ]
    text = json.dumps(reports)
    if given.output:
        given.output.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
