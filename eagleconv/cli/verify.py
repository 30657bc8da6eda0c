"""`eagleconv verify`."""

import click


@click.command()
@click.argument("directory", metavar="DIR")
def command(directory: str) -> None:
    """Check every byte of an output against its eagleconv.json, and account for every tensor.

    \b
    Example:
      eagleconv verify ./eagle3-ckpt-3.1-layout
    """
    from eagleconv.conversion.verify import verify
    from eagleconv.errors import ConversionError

    result = verify(directory)
    if result.problems:
        for problem in result.problems:
            click.echo(f"  {problem}", err=True)
        raise ConversionError(
            f"{directory} is not what eagleconv wrote: {len(result.problems)} problems"
        )
    click.echo(
        f"{directory}: {result.files} files and {result.tensors} tensors are as eagleconv.json says"
    )
