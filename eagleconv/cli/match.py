"""`eagleconv match`."""

import click


@click.command()
@click.argument("drafter")
@click.argument("target")
@click.option("--strict", is_flag=True, help="Exit 1 unless it is evidently the target.")
@click.option(
    "--adapter",
    "adapters",
    metavar="DIR",
    multiple=True,
    help="Served with the target; repeatable.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
)
@click.option("-o", "--output", metavar="FILE", help="Write the report there.")
def command(
    drafter: str,
    target: str,
    strict: bool,
    adapters: tuple[str, ...],
    form: str,
    output: str | None,
) -> None:
    """Say whether TARGET is the model a drafter was made for, level by level.

    TARGET is a directory, org/name, hf://org/name@revision, or a file of `eagleconv fingerprint`.
    What the drafter records (`eagleconv upgrade --target`), names and shows is compared; weights by
    rows, read by byte range. Exit 0: match or compatible; 1: mismatch; 3: nothing could be checked.

    \b
    Examples:
      eagleconv match ./drafter ./target
      eagleconv match org/drafter org/target@3f2a91c --strict --format json
    """
    import eagleconv
    from eagleconv.report.match import as_json, as_lines, as_markdown
    from eagleconv.report.output import emit

    found = eagleconv.match(drafter, target, adapters=adapters)
    if form == "json":
        from eagleconv.report.findings_json import as_text

        emit(as_text(as_json(found)), output)
    else:
        emit(as_markdown(found) if form == "markdown" else as_lines(found), output)
    code = {"match": 0, "compatible": 1 if strict else 0, "mismatch": 1, "unknown": 3}
    raise SystemExit(code[found.verdict])
