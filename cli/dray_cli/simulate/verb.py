"""``dray simulate openb``: the results of placement policies on a recorded cluster."""

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from dray_cli.output import output_option, print_json
from dray_cli.simulate.cluster import TIES
from dray_cli.simulate.protocol import ARRIVED, PlacementOutcome
from dray_cli.simulate.runs import DEFAULT, POLICIES, Job, jobs, outcomes, summary
from dray_cli.text import counted

_FILE = click.Path(dir_okay=False, path_type=Path)
_SEEDS = re.compile(r"(\d+)(?:-(\d+))?")
_MOST_SEEDS = 1000


def _seeds(_context: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    """``42``, ``42-51`` or ``1,5,42-51``."""
    found: dict[int, None] = {}
    for part in text.split(","):
        match = _SEEDS.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < first + _MOST_SEEDS:
            raise click.BadParameter(f"{part!r}: expected a number or a range such as 42-51")
        found.update(dict.fromkeys(range(first, last + 1)))
    return tuple(found)


@click.group()
def simulate() -> None:
    """Try placement policies on recorded clusters; needs no cluster."""


@simulate.command()
@click.option("--nodes", required=True, type=_FILE, help="The nodes: .csv or .csv.gz.")
@click.option("--pods", required=True, multiple=True, type=_FILE, help="The pods; repeatable.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(POLICIES),
    default=(DEFAULT,),
    show_default=True,
    help="Placement policy; repeatable.",
)
@click.option(
    "--seeds", callback=_seeds, default="42-51", show_default=True, help="Orders of the pods."
)
@click.option(
    "--ties",
    type=click.Choice(TIES),
    default="name",
    show_default=True,
    help="Which of the nodes with equal scores is chosen: a random one, or the first by name, "
    "after all nodes got random names. dray's own policies always use a hash of the node's UID, "
    "which depends on the seed and on this option.",
)
@click.option("--jobs", "processes", type=click.IntRange(1, 64), default=1, show_default=True)
@output_option
def openb(
    nodes: Path,
    pods: tuple[Path, ...],
    policies: tuple[str, ...],
    seeds: tuple[int, ...],
    ties: str,
    processes: int,
    output: str,
) -> None:
    """Run the published protocol on the openb trace.

    All pods arrive in an order that the seed determines, then copies of some, until they have
    requested 130 % of the fleet's GPUs; no pod ends. The results are the percentages of the
    fleet's GPUs that are allocated when 90, 100 and 130 % have been requested.

    The trace is not part of dray: docs/placement.md says where it is published.
    """
    todo = jobs(nodes, tuple(dict.fromkeys(pods)), tuple(dict.fromkeys(policies)), seeds, ties)
    report_progress = _progress_reporter(len(todo))
    found: dict[Job, PlacementOutcome] = {}
    for job, outcome in outcomes(
        todo, processes, lambda job, share: report_progress(job, len(found), share)
    ):
        found[job] = outcome
        report_progress(job, len(found), None)
    groups = _groups(todo, found)
    if output == "json":
        print_json([_as_data(group) for group in groups])
    else:
        _show(groups)


Group = list[tuple[Job, PlacementOutcome]]


def _groups(todo: Sequence[Job], found: dict[Job, PlacementOutcome]) -> list[Group]:
    """The runs of one list of pods and one policy together, by seed."""
    groups: dict[tuple[Path, str], Group] = {}
    for job in todo:
        groups.setdefault((job.pods, job.policy), []).append((job, found[job]))
    return list(groups.values())


def _as_data(group: Group) -> dict[str, Any]:
    job = group[0][0]
    return {
        "pods": job.pods.name,
        "policy": job.policy,
        "ties": job.ties,
        "alloc": {
            str(per_cent): {"mean": _rounded(one.mean), "sd": _rounded(one.deviation)}
            for per_cent, one in _summaries(group)
        },
        "seeds": [
            {
                "seed": job.seed,
                "pods": outcome.pods,
                "dropped": outcome.dropped,
                "alloc": {
                    str(per_cent): _rounded(one)
                    for per_cent, one in zip(ARRIVED, outcome.allocated, strict=True)
                },
            }
            for job, outcome in group
        ],
    }


def _summaries(group: Group) -> list[tuple[int, Any]]:
    return [
        (per_cent, summary([outcome.allocated[at] for _, outcome in group]))
        for at, per_cent in enumerate(ARRIVED)
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _show(groups: Sequence[Group]) -> None:
    job = groups[0][0][0]
    seeds = counted(len(groups[0]), "order", "orders")
    click.echo(
        "Per cent of the GPUs allocated when so many per cent have been requested: the "
        f"mean of {seeds} of the pods ± standard deviation, ties by {job.ties}.\n"
    )
    width = max(len(one[0][0].pods.name) for one in groups)
    head = "".join(f"{f'@{per_cent}':>15}" for per_cent in ARRIVED)
    click.echo(f"{'pods':{width}}  {'policy':20}{head}")
    for group in groups:
        cells = "".join(f"{_cell(one):>15}" for _, one in _summaries(group))
        click.echo(f"{group[0][0].pods.name:{width}}  {group[0][0].policy:20}{cells}")


def _cell(one: Any) -> str:
    deviation = "" if one.deviation is None else f" ± {one.deviation:.2f}"
    return f"{one.mean:.2f}{deviation}"


def _progress_reporter(runs: int) -> Callable[[Job, int, float | None], None]:
    """Progress on standard error: one line that changes at a terminal, else one per run."""
    is_terminal = sys.stderr.isatty()

    def tell(job: Job, done: int, share: float | None) -> None:
        if share is None and not is_terminal:
            click.echo(f"{done} of {runs} runs: {_name(job)}", err=True)
        elif is_terminal:
            where = "" if share is None else f"; {_name(job)}: {share:.0%} asked for"
            click.echo(f"\r\033[K{done} of {runs} runs{where}", nl=done == runs, err=True)

    return tell


def _name(job: Job) -> str:
    return f"{job.pods.name}, {job.policy}, seed {job.seed}"
