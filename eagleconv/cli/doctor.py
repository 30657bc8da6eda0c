"""`eagleconv doctor`."""

from __future__ import annotations

import sys
from typing import Any

import click

from eagleconv.cli.declared import declarations, declared


def told(number: int, all_: int) -> None:
    """Say on a terminal which reading is measured."""
    if sys.stderr.isatty():
        click.echo(f"\rreading {number + 1} of {all_}", nl=number + 1 == all_, err=True)


@click.command()
@click.argument("drafter")
@click.argument("target")
@click.option("--prompts", metavar="FILE", help="MT-Bench, OpenAI or plain text; else built in.")
@click.option("--limit", type=click.IntRange(2), default=12, show_default=True, metavar="N", help="Prompts at most.")  # fmt: skip
@click.option("--depth", type=click.IntRange(1, 16), default=4, show_default=True, metavar="K", help="Tokens per draft.")  # fmt: skip
@click.option(
    "--max-new-tokens", type=click.IntRange(8), default=48, show_default=True, metavar="N"
)
@click.option("--device", default="auto", show_default=True, metavar="D", help="cpu, cuda, cuda:N.")
@click.option("--dtype", default="auto", show_default=True, metavar="D", help="auto: float32 on a CPU, else bfloat16.")  # fmt: skip
@click.option("--plain", is_flag=True, help="Without the chat template.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
)
@click.option("-o", "--output", metavar="FILE", help="Write the report there.")
@declarations
def command(
    drafter: str,
    target: str,
    prompts: str | None,
    limit: int,
    depth: int,
    max_new_tokens: int,
    device: str,
    dtype: str,
    plain: bool,
    form: str,
    output: str | None,
    **facts: Any,
) -> None:
    """Find out why acceptance is low: which reading of the files do the weights want?

    Tries the readings that leave no trace in tensors (feedback, residual, layer ids, order of taps,
    d2t, rope base, own or shared embedding and head) along texts of the target, and ranks them.
    Exit 1 where another one than the configured is better beyond its interval.

    \b
    Examples:
      eagleconv doctor ./drafter ./target
      eagleconv doctor org/drafter org/target --format markdown
    """
    import eagleconv
    from eagleconv.report.diagnosis import as_json, as_lines, as_markdown
    from eagleconv.report.output import emit

    found = eagleconv.doctor(
        drafter,
        target,
        prompts=prompts,
        limit=limit,
        depth=depth,
        max_new_tokens=max_new_tokens,
        device=device,
        dtype=dtype,
        plain=plain,
        declared=declared(**facts),
        progress=told,
    )
    if form == "json":
        from eagleconv.report.findings_json import as_text

        emit(as_text(as_json(found)), output)
    else:
        emit(as_markdown(found) if form == "markdown" else as_lines(found), output)
    raise SystemExit(0 if found.wanted is None else 1)
