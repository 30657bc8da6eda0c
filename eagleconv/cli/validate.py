"""`eagleconv validate`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from eagleconv.cli.declared import declarations, declared
from eagleconv.errors import UsageError

if TYPE_CHECKING:
    from eagleconv.rules.outcome import FailOn

_FORMATS = ["text", "json", "sarif", "junit", "github", "markdown"]


def extra_reports(values: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return format and file of every `--report FORMAT=FILE`."""
    pairs = []
    for value in values:
        form, _, path = value.partition("=")
        if form not in _FORMATS or not path:
            raise UsageError(
                f"--report {value!r} is not FORMAT=FILE", f"FORMAT is {', '.join(_FORMATS)}"
            )
        pairs.append((form, path))
    return tuple(pairs)


def colored(output: str | None) -> bool:
    """Say whether text may be coloured: https://no-color.org and https://force-color.org."""
    if os.environ.get("NO_COLOR") or output is not None:
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


@click.command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option("--target", metavar="T", help="Target: a directory, config.json or Hub id.")
@click.option("--engine", metavar="E", multiple=True, help="As vllm or vllm==0.32.0; repeatable.")
@click.option("--context-length", type=click.IntRange(1), metavar="N", help="As it is served.")
@click.option("--deep/--no-deep", default=None, help="Read the weights too.")
@click.option("--select", metavar="RULES", multiple=True, help="Codes, ECV for all ECV..., names.")
@click.option("--ignore", metavar="RULES", multiple=True, help="Likewise; wins over --select.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info", "never"]),
    help="Exit 1 at or above it.  [default: error]",
)
@click.option("--format", "form", type=click.Choice(_FORMATS), help="[default: text]")
@click.option("-o", "--output", metavar="FILE", help="Write the report there.")
@click.option(
    "--report", metavar="FORMAT=FILE", multiple=True, help="Write another one too; repeatable."
)
@click.option("--baseline", metavar="FILE", help="Accept the findings in it.")
@click.option("--write-baseline", metavar="FILE", help="Write all findings there and accept them.")
@click.option("-v", "--verbose", is_flag=True, help="Say which configuration is used.")
@declarations
def command(
    sources: tuple[str, ...],
    target: str | None,
    engine: tuple[str, ...],
    context_length: int | None,
    deep: bool | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fail_on: FailOn | None,
    form: str | None,
    output: str | None,
    report: tuple[str, ...],
    baseline: str | None,
    write_baseline: str | None,
    verbose: bool,
    **facts: Any,
) -> None:
    """Check what engines would do with a drafter, and whether they would do it as trained.

    SOURCE may also be a file of a checkpoint. Defaults come from [tool.eagleconv] of the nearest
    pyproject.toml, or from .eagleconv.toml. The options from --aux-layers on declare what the
    weights were trained with, where the files leave it open.

    \b
    Examples:
      eagleconv validate ./eagle3-ckpt --target ./target --engine vllm==0.32.0
      eagleconv validate org/name --format markdown
      eagleconv validate drafters/*/ --baseline accepted.json --report sarif=out.sarif
    """
    import eagleconv
    from eagleconv.report.formats import FORMATS
    from eagleconv.report.output import emit
    from eagleconv.report.validation import Validation
    from eagleconv.rules import RULES
    from eagleconv.rules.batch import accept, check_all, record
    from eagleconv.rules.outcome import outcome
    from eagleconv.rules.settings import Settings, find_configuration

    more = extra_reports(report)
    configuration = find_configuration()
    if verbose:
        click.echo(f"configuration: {configuration.path or 'none'}", err=True)
        if configuration.passed_over:
            click.echo(f"passed over: {configuration.passed_over}", err=True)
    given = Settings(
        target=target,
        engine=engine or None,
        context_length=context_length,
        deep=deep,
        select=select or None,
        ignore=ignore or None,
        fail_on=fail_on,
    )
    validate = partial(eagleconv.validate, declared=declared(**facts))
    checked = check_all(sources, given, configuration, RULES, validate)
    said: tuple[str, ...] = ()
    accepted_by = write_baseline or baseline or configuration.baseline or ""
    if write_baseline:
        checked, line = record(checked, write_baseline)
        said = (line,)
    elif accepted_by:
        checked, said = accept(checked, accepted_by)
    run = Validation(checked, RULES, accepted_by, colored(output))
    emit(FORMATS[form or configuration.format or "text"](run), output)
    for extra, path in more:
        emit(FORMATS[extra](replace(run, color=False)), path)
    end = outcome(checked)
    for line in (*said, *end.said):
        click.echo(line, err=True)
    raise SystemExit(end.exit_code)
