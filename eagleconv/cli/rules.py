"""`eagleconv rules`."""

import click


@click.command()
@click.argument("rule", metavar="[CODE|NAME]", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
)
@click.option("-o", "--output", metavar="FILE", help="Write it there.")
def command(rule: str | None, form: str, output: str | None) -> None:
    """List what validate checks, or explain one rule.

    \b
    Examples:
      eagleconv rules
      eagleconv rules ECV001
    """
    from eagleconv.report.findings_json import as_text
    from eagleconv.report.output import emit
    from eagleconv.report.rule_page import as_json, as_rows, index, page
    from eagleconv.rules import RULES
    from eagleconv.rules.selection import one

    chosen = RULES if rule is None else (one(rule, RULES),)
    if form == "json":
        emit(as_text(as_json(chosen)), output)
    elif rule is not None:
        emit(page(chosen[0]), output)
    elif form == "markdown":
        emit(index(chosen), output)
    else:
        emit(as_rows(chosen), output)
