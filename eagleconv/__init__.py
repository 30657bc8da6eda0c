"""eagleconv: read, check and upgrade EAGLE drafters, without changing what they compute.

Every command is a function here; each returns a frozen dataclass and raises `EagleconvError`.
Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eagleconv.conversion.apply import Upgraded
    from eagleconv.conversion.difference import Difference
    from eagleconv.conversion.verify import Verified
    from eagleconv.drafter.declared import Declared
    from eagleconv.drafter.read import Drafter
    from eagleconv.rules.finding import Validated
    from eagleconv.runtime.doctor import Diagnosis
    from eagleconv.runtime.measured import Smoked
    from eagleconv.target.fingerprint import Fingerprint
    from eagleconv.target.match import Matched

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "diff",
    "doctor",
    "fingerprint",
    "inspect",
    "match",
    "smoke",
    "upgrade",
    "validate",
    "verify",
]


def inspect(source: str, *, target: str | None = None) -> Drafter:
    """Say what a checkpoint is: layout, producers, facts with origins, open questions, traps.

    Args:
        source: A directory, `org/name`, or `hf://org/name@revision`; only headers and small
            tensors of a repository are fetched.
        target: The target's directory, config.json or Hub id; settles the layer count.

    Raises:
        SourceError: It cannot be read, or is no EAGLE-3 drafter.
    """
    from eagleconv.checkpoint.source import open_source
    from eagleconv.drafter.read import read_drafter
    from eagleconv.target.config import read_target

    checkpoint = open_source(source, weights=False)
    try:
        return read_drafter(checkpoint, target=read_target(target) if target else None)
    finally:
        checkpoint.close()


def upgrade(
    source: str,
    output: str | None = None,
    *,
    target: str | None = None,
    declared: Declared | None = None,
    dry_run: bool = False,
    progress: Callable[[int], None] | None = None,
    on_written: Callable[[], None] | None = None,
) -> Upgraded:
    """Write a drafter in the EAGLE 3.1 layout; every carried tensor keeps every bit.

    Args:
        source: A directory, `org/name`, or `hf://org/name@revision`.
        output: Directory to write; default `<source>-3.1-layout`, beside a local source, in the
            current directory for a repository.
        target: The target's directory, config.json or Hub id.
        declared: What the weights were trained with, where the files leave it open.
        dry_run: Plan, and write nothing.
        progress: Called with the number of bytes of each piece written.
        on_written: Called the moment the output is in place, while signals are held off.

    Raises:
        SourceError: It cannot be read, or is no EAGLE-3 drafter.
        OpenQuestions: The files allow more than one reading; `questions` has one line for each.
        ConversionError: It cannot be written; nothing is left behind.
    """
    from eagleconv.checkpoint.source import open_source
    from eagleconv.conversion.apply import Upgraded, apply, carried_files, check_reread
    from eagleconv.conversion.plan import plan_layout
    from eagleconv.drafter.read import read_drafter
    from eagleconv.target.record import target_record
    from eagleconv.target.view import open_target

    checkpoint = open_source(source, weights=True)
    view = None
    try:
        view = open_target(target) if target else None
        drafter = read_drafter(checkpoint, declared, view.facts if view else None)
        plan = plan_layout(drafter)
        check_reread(drafter, plan)
        if dry_run:
            return Upgraded("", not plan.edits, plan, drafter, carried_files(drafter)[1])
        if output is None:
            name = source.split("/")[-1].split("@")[0]
            output = (name if checkpoint.revision else os.path.abspath(source)) + "-3.1-layout"
        return apply(drafter, plan, output, progress, on_written, target_record(drafter, view))
    finally:
        checkpoint.close()
        if view is not None:
            view.close()


def validate(
    source: str,
    *,
    target: str | None = None,
    engines: Sequence[str] = (),
    context_length: int | None = None,
    deep: bool = False,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    declared: Declared | None = None,
) -> Validated:
    """Say whether engines will run a drafter as it was trained.

    Args:
        source: A directory, `org/name`, or `hf://org/name@revision`; of a repository only config,
            headers and small tensors are fetched.
        target: The target's directory, config.json or Hub id.
        engines: Engines with versions, e.g. `vllm==0.32` or `sglang`.
        context_length: The context, in tokens, that is planned.
        deep: Read every tensor, not only the small ones.
        select: Rules to run: codes, beginnings of codes, or names; all by default.
        ignore: Rules not to run.
        declared: What the weights were trained with, where the files leave it open.

    Returns:
        Findings, rules that could not run, and one verdict for each engine and model runner. A
        source that cannot be read, or is no drafter, has `unreadable`.

    Raises:
        UsageError: An engine or a rule is not known.
        SourceError: The target cannot be read.
    """
    from eagleconv.engines import find_engine
    from eagleconv.rules import RULES
    from eagleconv.rules.selection import resolve
    from eagleconv.rules.validate import validate as run
    from eagleconv.target.view import open_target

    chosen = resolve(select, RULES) if select else tuple(r.code for r in RULES)
    left_out = resolve(ignore, RULES) if ignore else ()
    asked = [find_engine(text) for text in engines]
    opened = open_target(target) if target else None
    try:
        codes = [code for code in chosen if code not in left_out]
        return run(source, opened, asked, context_length, deep, codes, declared)
    finally:
        if opened is not None:
            opened.close()


def fingerprint(target: str, *, quick: bool = False) -> Fingerprint:
    """Read what identifies a target: shapes, tokenizer, template, rows of its weights.

    Args:
        target: A directory, config.json or Hub id; of a repository some megabytes are fetched.
        quick: Of the weights, read embedding, head, and one matrix and one norm of each layer.

    Raises:
        SourceError: It cannot be read, or a file of it is broken.
    """
    from eagleconv.target.fingerprint import take_fingerprint
    from eagleconv.target.view import open_target

    view = open_target(target)
    try:
        return take_fingerprint(view, quick)
    finally:
        view.close()


def match(drafter: str, target: str, *, adapters: Sequence[str] = ()) -> Matched:
    """Say whether a target is the model a drafter was made for, level by level.

    Args:
        drafter: A directory, `org/name`, or `hf://org/name@revision`.
        target: A directory, config.json, Hub id, or a file of `eagleconv fingerprint`.
        adapters: Directories of adapters that are served with the target; one that lies in the
            target's directory is found.

    Raises:
        SourceError: One of them cannot be read, or the drafter is none.
    """
    from eagleconv.checkpoint.source import open_source
    from eagleconv.drafter.read import read_drafter
    from eagleconv.target.adapter import find_adapters
    from eagleconv.target.fingerprint import load_fingerprint, take_fingerprint
    from eagleconv.target.match import compare
    from eagleconv.target.view import open_target

    known = load_fingerprint(target) if os.path.isfile(target) else None
    checkpoint = open_source(drafter, weights=False)
    view = None
    try:
        read = read_drafter(checkpoint, collect=True)
        if known is None:
            view = open_target(target)
            known = take_fingerprint(view, weights=False)
        found = find_adapters(adapters, view.directory if view else "")
        return compare(read, known, view, found)
    finally:
        checkpoint.close()
        if view is not None:
            view.close()


def smoke(
    drafter: str,
    target: str,
    *,
    prompts: str | None = None,
    limit: int | None = 12,
    depth: int = 3,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    plain: bool = False,
    compare: bool = True,
    negative_control: bool = False,
    declared: Declared | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Smoked:
    """Run drafter and target together and count what is accepted.

    Args:
        drafter: A directory, `org/name`, or `hf://org/name@revision`.
        target: A directory or Hub id that transformers loads.
        prompts: A file of prompts; the built-in set where None.
        limit: How many prompts at most, one of each category in turn.
        depth: Tokens per draft, in a chain.
        max_new_tokens: Of each text.
        temperature: 0 for greedy; above, drafts stay the likeliest token and rejection sampling
            keeps the target's distribution, as vLLM does by default.
        seed: Of all draws.
        device: `auto` (CUDA where there is one), `cpu`, `cuda`, `cuda:1`.
        dtype: `auto` (float32 on a CPU, else bfloat16) or a name.
        plain: Leave the target's chat template out.
        compare: Run the target alone too: equal text, tokens per second, costs of a step.
        negative_control: Measure a shuffled head as well, which must collapse.
        declared: What the drafter's weights were trained with, where the files leave it open.
        progress: Called with the number of the prompt and of all prompts.

    Raises:
        SourceError: Drafter, target or prompts cannot be read.
        OpenQuestions: The drafter's files allow more than one reading.
        MissingExtraError: torch or transformers, or a CUDA device that was asked for, is missing.
        ConversionError: The drafter is one that the runtime does not compute.
    """
    from eagleconv.runtime.smoke import smoke as run

    return run(
        drafter,
        target,
        prompts=prompts,
        limit=limit,
        depth=depth,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        device=device,
        dtype=dtype,
        plain=plain,
        compare=compare,
        negative_control=negative_control,
        declared=declared,
        progress=progress,
    )


def doctor(
    drafter: str,
    target: str,
    *,
    prompts: str | None = None,
    limit: int | None = 12,
    depth: int = 4,
    max_new_tokens: int = 48,
    device: str = "auto",
    dtype: str = "auto",
    plain: bool = False,
    declared: Declared | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Diagnosis:
    """Say which reading of a drafter its weights want: feedback, residual, taps, map, rope, ...

    Args:
        drafter: A directory, `org/name`, or `hf://org/name@revision`.
        target: A directory or Hub id that transformers loads.
        prompts: A file of prompts; the built-in set where None.
        limit: How many prompts at most, one of each category in turn.
        depth: Tokens drafted at each prefix.
        max_new_tokens: Of each continuation by the target.
        device: `auto` (CUDA where there is one), `cpu`, `cuda`, `cuda:1`.
        dtype: `auto` (float32 on a CPU, else bfloat16) or a name.
        plain: Leave the target's chat template out.
        declared: How the files are read to begin with, where they leave it open.
        progress: Called with the number of the reading and of all readings.

    Raises:
        SourceError, OpenQuestions, MissingExtraError, ConversionError: As `smoke`.
    """
    from eagleconv.runtime.doctor import doctor as run

    return run(
        drafter,
        target,
        prompts=prompts,
        limit=limit,
        depth=depth,
        max_new_tokens=max_new_tokens,
        device=device,
        dtype=dtype,
        plain=plain,
        declared=declared,
        progress=progress,
    )


def verify(directory: str) -> Verified:
    """Hold every byte and tensor of an output against its eagleconv.json.

    Raises:
        SourceError: It has no eagleconv.json, or cannot be read.
    """
    from eagleconv.conversion.verify import verify as check

    return check(directory)


def diff(a: str, b: str) -> Difference:
    """Compare two drafters: facts by meaning, tensors by canonical name and value.

    Raises:
        SourceError: One of them cannot be read, or is no EAGLE-3 drafter.
    """
    from eagleconv.checkpoint.source import open_source
    from eagleconv.conversion.difference import compare
    from eagleconv.drafter.read import read_drafter

    left = open_source(a, weights=True)
    try:
        right = open_source(b, weights=True)
        try:
            return compare(read_drafter(left), read_drafter(right))
        finally:
            right.close()
    finally:
        left.close()
