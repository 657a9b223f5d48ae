"""``dray cel check``: what a server says to a selector before any device is there."""

import sys
from typing import Any

import click

from dray.cel.admission import MOST_COST
from dray.cel.environment import Mode
from dray.cel.errors import CelCompileError
from dray.seed.dialect import translate
from dray_cli.cel_verdict import DEFAULT_VERSION, Judgement, judge
from dray_cli.output import output_option, print_json

_MICROSECONDS_PER_UNIT = 0.1
"""Kubernetes calls its limit of a million units roughly 0.1 s."""

version_option = click.option(
    "--k8s",
    "version",
    metavar="VERSION",
    default=DEFAULT_VERSION,
    show_default=True,
    help="Version of Kubernetes, as in 1.34.",
)


@click.command()
@click.argument("expression")
@version_option
@click.option(
    "--environment",
    type=click.Choice([mode.value for mode in Mode]),
    default=Mode.NEW.value,
    show_default=True,
    help="new: it is written into an object now; stored: it stands in one already.",
)
@output_option
def check(expression: str, version: str, environment: str, output: str) -> None:
    """Say whether a server accepts EXPRESSION (- reads standard input), and what it costs.

    Exit code 1: it is refused; the error names the place and the nearest known name.
    """
    text = sys.stdin.read() if expression == "-" else expression
    found = judge(text, version, Mode(environment))
    if output == "json":
        print_json(_as_json(text, version, environment, found))
    elif found.verdict == "ok":
        _print(found, version, environment)
    else:
        click.echo(found.error, err=True)
        for line in _hint(text, found):
            click.echo(line, err=True)
    if found.verdict != "ok":
        sys.exit(1)


def _print(found: Judgement, version: str, environment: str) -> None:
    assert found.program is not None
    click.echo(f"ok in {environment} objects of Kubernetes {version}")
    click.echo(f"type  {found.program.checked.result}")
    click.echo(
        f"cost  at most {found.program.cost:,} of {MOST_COST:,} units per device, "
        f"about {found.program.cost * _MICROSECONDS_PER_UNIT:,.1f} µs of kube-scheduler's time"
    )


def _hint(text: str, found: Judgement) -> list[str]:
    """What may help: the expression may be written in the seed's dialect."""
    if found.verdict != "compile-error":
        return []
    try:
        translated = translate(text)
    except CelCompileError:
        return []
    if not translated.changes:
        return []
    return [
        "",
        "This is the user guide's dialect; in that of Kubernetes it is",
        translated.expression,
    ]


def _as_json(text: str, version: str, environment: str, found: Judgement) -> dict[str, Any]:
    program = found.program
    return {
        "expression": text,
        "k8s": version,
        "environment": environment,
        "admission": found.verdict,
        "error": found.error or None,
        "type": None if program is None else str(program.checked.result),
        "cost": None if program is None else program.cost,
        "costLimit": MOST_COST,
    }
