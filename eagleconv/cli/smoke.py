"""`eagleconv smoke`."""

from __future__ import annotations

import sys
from typing import Any

import click

from eagleconv.cli.declared import declarations, declared
from eagleconv.errors import UsageError


def shares(text: str | None) -> tuple[float, ...]:
    """Read `--min-acceptance`: shares by position, separated by commas.

    Raises:
        UsageError: One is no number from 0 to 1.
    """
    try:
        found = tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        found = (-1.0,)
    if not all(0 <= share <= 1 for share in found):
        raise UsageError(f"--min-acceptance {text!r} is not shares from 0 to 1, as 0.6,0.4,0.2")
    return found


def told(number: int, all_: int) -> None:
    """Say on a terminal which prompt runs."""
    if sys.stderr.isatty():
        click.echo(f"\rprompt {number + 1} of {all_}", nl=number + 1 == all_, err=True)


@click.command()
@click.argument("drafter")
@click.argument("target")
@click.option("--prompts", metavar="FILE", help="MT-Bench, OpenAI or plain text; else built in.")
@click.option("--limit", type=click.IntRange(1), default=12, show_default=True, metavar="N", help="Prompts at most.")  # fmt: skip
@click.option("--depth", type=click.IntRange(1, 16), default=3, show_default=True, metavar="K", help="Tokens per draft.")  # fmt: skip
@click.option(
    "--max-new-tokens", type=click.IntRange(2), default=64, show_default=True, metavar="N"
)
@click.option(
    "--temperature", type=click.FloatRange(0), default=0.0, show_default=True, metavar="T"
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N")
@click.option(
    "--min-acceptance-length", type=click.FloatRange(1), metavar="X", help="Exit 1 below."
)
@click.option("--min-acceptance", metavar="P1,P2,...", help="By position; exit 1 below one.")
@click.option("--device", default="auto", show_default=True, metavar="D", help="cpu, cuda, cuda:N.")
@click.option("--dtype", default="auto", show_default=True, metavar="D", help="auto: float32 on a CPU, else bfloat16.")  # fmt: skip
@click.option("--plain", is_flag=True, help="Without the chat template.")
@click.option("--compare/--no-compare", default=True, help="Run the target alone as well.")
@click.option("--negative-control", is_flag=True, help="A shuffled head must collapse.")
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
    temperature: float,
    seed: int,
    min_acceptance_length: float | None,
    min_acceptance: str | None,
    device: str,
    dtype: str,
    plain: bool,
    compare: bool,
    negative_control: bool,
    form: str,
    output: str | None,
    **facts: Any,
) -> None:
    """Run drafter and target together and count what is accepted.

    Greedy output equals the target's alone whatever the drafter does, so a text is never a sign of
    health: acceptance by position is. Exit 1 below a threshold, or where the measurement is
    worthless (NaN, loops, everything accepted).

    \b
    Examples:
      eagleconv smoke ./drafter ./target --min-acceptance-length 1.3
      eagleconv smoke org/drafter org/target --depth 5 --min-acceptance 0.6,0.4 --format json
    """
    import eagleconv
    from eagleconv.report.acceptance import as_json, as_lines, as_markdown, below
    from eagleconv.report.output import emit

    wanted = shares(min_acceptance)
    if len(wanted) > depth:
        raise UsageError(f"--min-acceptance has {len(wanted)} positions, --depth {depth}")
    found = eagleconv.smoke(
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
        declared=declared(**facts),
        progress=told,
    )
    missed = below(found, min_acceptance_length, wanted)
    if form == "json":
        from eagleconv.report.findings_json import as_text

        emit(as_text(as_json(found, missed)), output)
    else:
        render = as_markdown if form == "markdown" else as_lines
        emit(render(found, missed), output)
    raise SystemExit(1 if missed or found.failures else 0)
