"""``dray cel check``: whether a server accepts a selector, and what its evaluation costs."""

import sys
from dataclasses import asdict, dataclass
from typing import Any, TextIO

import click

from dray.cel.admission import MOST_COST
from dray.cel.environment import Mode
from dray.cel.errors import CelCompileError
from dray.cel.eval.program import Program, compile, conjuncts
from dray.user_guide_form.dialect import translate
from dray_cli.cel_slices import candidates_of_file
from dray_cli.cel_verdict import DEFAULT_VERSION, Judgement, feature_gates, judge
from dray_cli.output import output_option, print_json

_MICROSECONDS_PER_UNIT = 0.1
"""Kubernetes estimates that its limit of a million units takes roughly 0.1 s."""

version_option = click.option(
    "--k8s",
    "version",
    metavar="VERSION",
    default=DEFAULT_VERSION,
    show_default=True,
    help="Version of Kubernetes, such as 1.34.",
)


def _gates(_context: click.Context, _parameter: click.Parameter, value: str) -> dict[str, bool]:
    try:
        return feature_gates(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


gates_option = click.option(
    "--feature-gates",
    "gates",
    metavar="NAME=true|false,…",
    default="",
    callback=_gates,
    help="Gates that differ from the version's defaults, such as DRAListTypeAttributes=true.",
)


@click.command()
@click.argument("expression")
@version_option
@gates_option
@click.option(
    "--environment",
    type=click.Choice([mode.value for mode in Mode]),
    default=Mode.NEW.value,
    show_default=True,
    help="new: in an object that is created or changed now; stored: in one that is stored already.",
)
@click.option(
    "-f",
    "--filename",
    "file",
    type=click.File("r", encoding="utf-8", lazy=True),
    help="ResourceSlices: also print what evaluation on their devices costs.",
)
@output_option
def check(
    expression: str,
    version: str,
    gates: dict[str, bool],
    environment: str,
    file: TextIO | None,
    output: str,
) -> None:
    """Say whether a server accepts EXPRESSION (- reads standard input), and what it costs.

    Exit code 1: it is refused; the error shows the position and the nearest known name.
    """
    text = sys.stdin.read() if expression == "-" else expression
    found = judge(text, version, Mode(environment), gates)
    used = _used(found, file) if file is not None and found.verdict == "ok" else []
    if output == "json":
        print_json(_as_json(text, version, environment, found, used))
    elif found.verdict == "ok":
        _print(found, version, environment, used)
    else:
        click.echo(found.error, err=True)
        for line in _hint(text, found):
            click.echo(line, err=True)
    if found.verdict != "ok":
        sys.exit(1)


@dataclass(frozen=True, slots=True)
class _Clause:
    """One top-level ``&&`` term by itself."""

    text: str
    type: str
    cost: int


def _clauses(program: Program) -> list[_Clause]:
    """The clauses, if there are several; a clause of a valid selector is a valid selector, too."""
    terms = conjuncts(program.tree)
    if len(terms) == 1:
        return []
    texts = [program.expression[term.place.start : term.place.end] for term in terms]
    alone = [compile(text, program.checked.environment) for text in texts]
    return [_Clause(one.expression, str(one.checked.result), one.cost) for one in alone]


def _used(found: Judgement, file: TextIO) -> list[int]:
    """The cost of evaluation on each device on which the expression can be evaluated."""
    assert found.program is not None
    outcomes = [found.program.evaluate(c.view()) for c in candidates_of_file(file)]
    return [outcome.cost for outcome in outcomes if outcome.cost is not None]


def _print(found: Judgement, version: str, environment: str, used: list[int]) -> None:
    assert found.program is not None
    taken = _taken_for(version, found.program.checked.environment.minor)
    click.echo(f"ok in {environment} objects of Kubernetes {version}{taken}")
    click.echo(f"type  {found.program.checked.result}")
    click.echo(
        f"cost  at most {found.program.cost:,} of {MOST_COST:,} units per device, "
        f"about {found.program.cost * _MICROSECONDS_PER_UNIT:,.1f} µs of kube-scheduler's time"
    )
    for clause in _clauses(found.program):
        click.echo(f"      {clause.cost:9,}  {clause.type:4}  {clause.text}")
    if used:
        mean = sum(used) / len(used)
        span = f"{min(used):,} to {max(used):,}"
        click.echo(f"used  {span} units on {len(used):,} devices, {mean:,.1f} on average")


def _taken_for(version: str, minor: int) -> str:
    """A note if dray does not know ``version`` and uses the language of another; else empty."""
    if int(version.removeprefix("v").split(".")[1]) == minor:
        return ""
    return f", taken for 1.{minor}, the nearest that dray knows"


def _hint(text: str, found: Judgement) -> list[str]:
    """The translated expression as a hint, if it is written in the user guide's dialect."""
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


def _as_json(
    text: str, version: str, environment: str, found: Judgement, used: list[int]
) -> dict[str, Any]:
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
        "clauses": [asdict(clause) for clause in _clauses(program)] if program else [],
        "costOnDevices": used,
    }
