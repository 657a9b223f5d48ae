"""``dray cel``: translate a selector, check it, or ask it about devices."""

import sys

import click

from dray.user_guide_form.blocks import translate_block
from dray_cli.cel_check import check
from dray_cli.cel_eval import evaluate
from dray_cli.output import output_option, print_json


@click.group()
def cel() -> None:
    """Translate, check and evaluate device selectors."""


@cel.command()
@click.argument("expression")
@output_option
@click.option("--explain", is_flag=True, help="Say on standard error what was changed and why.")
def translate(expression: str, output: str, explain: bool) -> None:
    """Print EXPRESSION (- reads it from standard input) in the dialect of Kubernetes."""
    found = translate_block(sys.stdin.read() if expression == "-" else expression)
    if output == "json":
        shown = {
            "expression": found.expression,
            "changes": list(found.changes),
            "warnings": list(found.warnings),
        }
        print_json(shown)
        return
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    for change in found.changes if explain else ():
        click.echo(change, err=True)
    click.echo(found.expression.removesuffix("\n"))


cel.add_command(check)
cel.add_command(evaluate)
