"""`eagleconv diff`."""

import click


@click.command()
@click.argument("a")
@click.argument("b")
def command(a: str, b: str) -> None:
    """Compare two drafters by meaning; exit 1 where they differ.

    \b
    Example:
      eagleconv diff ./eagle3-ckpt ./eagle3-ckpt-3.1-layout
    """
    import eagleconv
    from eagleconv.report.difference import as_lines

    found = eagleconv.diff(a, b)
    click.echo(as_lines(found), nl=False)
    if not found.same:
        raise SystemExit(1)
