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
    from eagleconv.checkpoint.source import open_source
    from eagleconv.drafter.read import read_drafter
    from eagleconv.report.difference import as_lines
    from eagleconv.upgrade.difference import compare

    left = open_source(a, weights=True)
    try:
        right = open_source(b, weights=True)
        try:
            found = compare(read_drafter(left), read_drafter(right))
        finally:
            right.close()
    finally:
        left.close()
    click.echo(as_lines(found), nl=False)
    if not found.same:
        raise SystemExit(1)
