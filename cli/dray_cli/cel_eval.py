"""``dray cel eval``: which devices a selector matches, and why it does not match the others."""

import asyncio
import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

import click

from dray.user_guide_form.dialect import translate
from dray_cli.cel_batch import answers
from dray_cli.cel_check import gates_option, version_option
from dray_cli.cel_engines import ENGINES, EngineFinding
from dray_cli.cel_slices import SliceDevice, candidates_of_cluster, candidates_of_file
from dray_cli.gpu_names import GpuNames
from dray_cli.output import output_option, print_json
from dray_cli.target import kubeconfig_option
from dray_cli.text import styled, wrapped_on_terminal

_COLOURS = {True: "green", False: "yellow", None: "red"}
_MARKS = {True: "match", False: "no match", None: "error"}


@click.command("eval")
@click.argument("expression", required=False)
@click.option(
    "-f",
    "--filename",
    "file",
    type=click.File("r", encoding="utf-8", lazy=True),
    help="ResourceSlices as YAML or JSON (a List too), or - for standard input.",
)
@click.option("--cluster", is_flag=True, help="Read the cluster's ResourceSlices.")
@kubeconfig_option
@click.option("--batch", is_flag=True, help="Answer JSON Lines from standard input, one by one.")
@version_option
@gates_option
@click.option(
    "--engine",
    type=click.Choice(list(ENGINES)),
    default="dray",
    show_default=True,
    help="celpy: another implementation of standard CEL, without Kubernetes' libraries.",
)
@click.option("--explain", is_flag=True, help="Show each clause and the values it read.")
@output_option
def evaluate(
    expression: str | None,
    file: TextIO | None,
    cluster: bool,
    kubeconfig: str | None,
    batch: bool,
    version: str,
    gates: dict[str, bool],
    engine: str,
    explain: bool,
    output: str,
) -> None:
    """Say which devices EXPRESSION selects (- reads it from standard input), in either dialect.

    Exit codes: 0 answered, whatever the answers; 1 the expression or the slices can't be used;
    2 used wrongly.
    """
    if batch:
        _answer_lines(expression, file, cluster)
        return
    if expression is None:
        raise click.UsageError("give an EXPRESSION, or --batch")
    if (file is None) != cluster:
        raise click.UsageError("give the devices: either -f FILE or --cluster")
    text = sys.stdin.read() if expression == "-" else expression
    found = _candidates(file, kubeconfig)
    evaluator = ENGINES[engine](translate(text).expression, version, gates)
    rows = [(candidate, evaluator(candidate)) for candidate in found]
    if output == "json":
        print_json([_as_json(candidate, finding) for candidate, finding in rows])
    else:
        for line in _table(rows, _names(found), explain=explain):
            click.echo(wrapped_on_terminal(line))


def _answer_lines(expression: str | None, file: TextIO | None, cluster: bool) -> None:
    if expression is not None or file is not None or cluster:
        raise click.UsageError("--batch takes expressions and devices from standard input only")
    for answer in answers(sys.stdin.buffer):
        click.echo(json.dumps(answer))


def _candidates(file: TextIO | None, kubeconfig: str | None) -> list[SliceDevice]:
    if file is not None:
        return candidates_of_file(file)
    _, found = asyncio.run(candidates_of_cluster(kubeconfig))
    return found


def _names(candidates: Iterable[SliceDevice]) -> GpuNames:
    return GpuNames(
        {
            "spec": {
                "driver": candidate.driver,
                "pool": {"name": candidate.name.partition("/")[0]},
                "devices": [candidate.device],
            }
        }
        for candidate in candidates
    )


def _table(
    rows: list[tuple[SliceDevice, EngineFinding]], names: GpuNames, *, explain: bool
) -> Iterator[str]:
    shown = [names.shortened(candidate.name) for candidate, _ in rows]
    width = max([6, *map(len, shown)])
    yield f"{'DEVICE':{width}}  RESULT    WHY"
    for name, (candidate, finding) in zip(shown, rows, strict=True):
        mark = styled(f"{_MARKS[finding.result]:8}", fg=_COLOURS[finding.result])
        lines = [f"{name:{width}}  {mark}  {_why(finding)}".rstrip()]
        lines += _clause_lines(finding) if explain else ()
        yield from (_without_domain(line, candidate.driver) for line in lines)
    taken = sum(finding.result is True for _, finding in rows)
    yield f"{taken} of {len(rows)} devices match"


def _why(finding: EngineFinding) -> str:
    """The clause that fails, with the values that it read; or the error."""
    if finding.error:
        return finding.error
    failing = next((clause for clause in finding.clauses if clause.value is False), None)
    if failing is None:
        return ""
    seen = [f"{path} is {_shown(value)}" for path, value in failing.read.items()]
    return failing.text + (f"   ({', '.join(seen)})" if seen else "")


def _without_domain(text: str, driver: str) -> str:
    """Remove the domain of the device's own driver from attributes and capacities, so that lines
    fit 80 columns."""
    return re.sub(rf'device\.(attributes|capacity)\["{re.escape(driver)}"\]\.', "", text)


def _clause_lines(finding: EngineFinding) -> Iterator[str]:
    for clause in finding.clauses:
        values = (_shown(value) for value in clause.read.values())
        seen = f"  (read {', '.join(values)})" if clause.read else ""
        yield f"    {_truth(clause.value):5}  {clause.text}{seen}"


def _truth(value: bool | None) -> str:
    return "error" if value is None else str(value).lower()


def _shown(value: Any) -> str:
    return "absent" if value is None else repr(_plain(value))


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _as_json(candidate: SliceDevice, finding: EngineFinding) -> dict[str, Any]:
    failing = next((clause.text for clause in finding.clauses if clause.value is False), "")
    return {
        "device": candidate.name,
        "result": _MARKS[finding.result],
        "why": finding.error or ("" if finding.result else failing),
        "cost": finding.cost,
        "clauses": [
            {
                "clause": clause.text,
                "result": _truth(clause.value),
                "error": clause.error,
                "read": {path: _plain(value) for path, value in clause.read.items()},
            }
            for clause in finding.clauses
        ],
    }
