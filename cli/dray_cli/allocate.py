"""``dray allocate``: says offline which devices claims get on a node."""

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import click

from dray.api.quantities import readable_quantity
from dray_cli.allocate_batch import answers
from dray_cli.json_lines import Answer

_LINES_PER_REPORT = 1000


@click.command()
@click.option(
    "--batch",
    is_flag=True,
    required=True,
    help="Answer JSON Lines, one by one. There is no other mode yet.",
)
@click.option(
    "--mode",
    type=click.Choice(["compatible"]),
    required=True,
    help="compatible: decide as kube-scheduler does, first fit.",
)
@click.option(
    "-f",
    "--filename",
    "file",
    type=click.File("rb", lazy=True),
    default="-",
    show_default=True,
    help="JSON Lines, or - for standard input.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "text"]),
    default="json",
    show_default=True,
    help="JSON Lines for programs, or a line or more per question for people.",
)
def allocate(batch: bool, mode: str, file: BinaryIO, output: str) -> None:
    """Say which devices claims get on a node, given slices, classes and other allocations.

    Each line is a JSON object: id, k8s (1.36), features (gates that are on), node, slices,
    classes, allocated (claims that hold devices) and claims (to be allocated, all or none), each
    as Kubernetes writes it. The answer has allocations, one AllocationResult per claim or null
    if they don't fit, or error.

    Exit codes: 0 answered, whatever the answers; 2 used wrongly, or the file can't be read.
    """
    for found in _reported(answers(file)):
        if output == "json":
            click.echo(json.dumps(found))
        else:
            for line in _answer_lines(found):
                click.echo(line)


def _reported(found: Iterable[Answer]) -> Iterator[Answer]:
    """The answers. On a terminal, progress is printed after every thousandth answer."""
    tells = sys.stderr.isatty()
    for number, one in enumerate(found, 1):
        yield one
        if tells and number % _LINES_PER_REPORT == 0:
            click.echo(f"{number} lines answered", err=True)


def _answer_lines(found: Answer) -> Iterator[str]:
    if found["error"] is not None:
        yield f"{found['id']}: error: {found['error']}"
    elif found["allocations"] is None:
        yield f"{found['id']}: does not fit"
    else:
        yield f"{found['id']}: fits"
        for number, allocation in enumerate(found["allocations"]):
            for result in allocation["devices"]["results"]:
                yield f"    claim {number}: {_device(result)}"


def _device(result: dict[str, Any]) -> str:
    device = f"{result['request']} gets {result['driver']}/{result['pool']}/{result['device']}"
    consumed = ", ".join(
        f"{k} {readable_quantity(v)}" for k, v in result.get("consumedCapacity", {}).items()
    )
    return device + (f" ({consumed})" if consumed else "")
