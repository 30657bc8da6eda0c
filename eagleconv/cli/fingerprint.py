"""`eagleconv fingerprint`."""

import click


@click.command()
@click.argument("target")
@click.option("--quick", is_flag=True, help="Of each layer read one matrix and one norm.")
@click.option("-o", "--output", metavar="FILE", help="Write it there.")
def command(target: str, quick: bool, output: str | None) -> None:
    """Write down what identifies a target: shapes, tokenizer, template, rows of its weights.

    TARGET is a directory, org/name or hf://org/name@revision; of a repository some megabytes are
    fetched, never the weights.

    \b
    Examples:
      eagleconv fingerprint ./target -o target.json
      eagleconv fingerprint org/name@v1.0 --quick
    """
    import eagleconv
    from eagleconv.checkpoint.json_file import dump_json
    from eagleconv.report.output import emit

    found = eagleconv.fingerprint(target, quick=quick)
    emit(dump_json(found.as_json()).decode(), output)
    for level, why in found.missing.items():
        click.echo(f"not in it: {level}: {why}", err=True)
