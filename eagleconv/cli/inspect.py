"""`eagleconv inspect`."""

import click


@click.command()
@click.argument("source")
@click.option("--target", metavar="T", help="Target: a directory, config.json or Hub id.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
)
@click.option("-v", "--verbose", is_flag=True, help="Show the origin of every value.")
@click.option("-o", "--output", metavar="FILE", help="Write the report there.")
def command(source: str, target: str | None, form: str, verbose: bool, output: str | None) -> None:
    """Say what a checkpoint is: layout, producer, variant, taps, and what cannot be known.

    \b
    Examples:
      eagleconv inspect ./eagle3-ckpt
      eagleconv inspect org/name --format json
    """
    import eagleconv
    from eagleconv.report.drafter import as_json, as_lines
    from eagleconv.report.output import emit

    drafter = eagleconv.inspect(source, target=target)
    if form == "json":
        from eagleconv.checkpoint.json_file import dump_json

        emit(dump_json(as_json(drafter)).decode(), output)
    else:
        emit(as_lines(drafter, markdown=form == "markdown", verbose=verbose), output)
