"""`eagleconv engines`."""

import click


@click.command()
@click.argument("name", metavar="[NAME|NAME==VERSION]", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
)
@click.option("-o", "--output", metavar="FILE", help="Write it there.")
def command(name: str | None, form: str, output: str | None) -> None:
    """Show what serving engines run, or the facts of one engine with their sources.

    \b
    Examples:
      eagleconv engines
      eagleconv engines sglang
      eagleconv engines vllm==0.21
    """
    from eagleconv.engines import ENGINES, find_engine
    from eagleconv.report.engines import (
        as_json,
        matrix_markdown,
        matrix_text,
        page_markdown,
        page_text,
    )
    from eagleconv.report.findings_json import as_text
    from eagleconv.report.output import emit

    every = tuple((engine, engine.version) for engine in ENGINES)
    asked = every if name is None else (find_engine(name),)
    version = asked[0][1] if name is not None and "==" in name else None
    if form == "json":
        emit(as_text(as_json(asked, version is not None)), output)
    elif name is not None:
        page = page_markdown if form == "markdown" else page_text
        emit(page(asked[0][0], version), output)
    else:
        emit((matrix_markdown if form == "markdown" else matrix_text)(asked), output)
