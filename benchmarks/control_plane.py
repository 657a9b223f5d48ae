"""Pods bound by kube-scheduler and by dray, side by side: ``python -m benchmarks.control_plane``.

Three rows, each on its own real control plane, one after the other on this machine:
kube-scheduler with one claim per pod, dray with the same claims on dedicated nodes, and
kube-scheduler without claims, which shows the limit of the API server. Nodes are Node objects and
ResourceSlices; nothing runs on them, so that only the binding is measured. Other work on the
machine affects pods per second; it affects CPU time per pod, and the comparison of rows, less.
``--gang 4``: the same pods in Kubernetes PodGroups of four.
"""

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.control_plane_fleet import Size
from benchmarks.control_plane_profile import groups
from benchmarks.control_plane_rows import ROWS, Outcome, Row, run_row
from benchmarks.machine import machine
from dray.api.errors import DrayError
from dray_sandbox.controlplane.build import wanted_minor

_LEAST_WRITES = 0.005
"""Writes per pod; rarer writes do not belong to each pod."""
_FIRST_WITH_GROUPS = 37


@click.command()
@click.option("--nodes", default=500, show_default=True, help="Nodes, all in one GPUPool.")
@click.option("--gpus", default=8, show_default=True, help="Cards per node.")
@click.option("--pods", default=2000, show_default=True, help="Pods, with one claim each.")
@click.option(
    "--full",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of the cards that claims hold from the start.",
)
@click.option(
    "--within",
    "within_s",
    default=600.0,
    show_default=True,
    help="Seconds for a row's pods; of a slower row, what is bound by then is measured.",
)
@click.option(
    "--gang",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Pods of each PodGroup of Kubernetes (1.37 and newer); 0: no groups.",
)
@click.option("--rows", default="a,b,c", show_default=True, help="Which rows, in which order.")
@click.option("--profile", is_flag=True, help="Also sample dray's services (row b).")
@click.option(
    "--stacks",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to keep the sampled stacks in.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def main(
    nodes: int,
    gpus: int,
    pods: int,
    full: float,
    within_s: float,
    gang: int,
    rows: str,
    profile: bool,
    stacks: Path | None,
    output: str,
) -> None:
    """Bind pods by kube-scheduler and by dray on real control planes, and print the figures."""
    if gang and int(wanted_minor().split(".")[1]) < _FIRST_WITH_GROUPS:
        raise click.UsageError(
            f"Kubernetes {wanted_minor()} has no such PodGroups: set DRAY_KUBERNETES=1."
            f"{_FIRST_WITH_GROUPS}"
        )
    size = Size(nodes, gpus, pods, full, within_s, gang)
    chosen = _chosen(rows)
    with tempfile.TemporaryDirectory() as folder:
        kept = (stacks or Path(folder)) if profile or stacks else None
        if kept is not None:
            kept.mkdir(parents=True, exist_ok=True)
        found = []
        for row in chosen:
            outcome = _run(row, size, kept.resolve() if kept else None)
            found.append(summary(outcome))
            _progress(_line(found[-1]).strip())
        result = {
            "machine": machine(),
            "kubernetes": wanted_minor(),
            "nodes": nodes,
            "gpusPerNode": gpus,
            "pods": pods,
            "full": full,
            "gang": gang,
            "rows": found,
        }
    click.echo(json.dumps(result, indent=2) if output == "json" else in_words(result))


def summary(outcome: Outcome) -> dict[str, Any]:
    """A row's figures. Per pod, from the first creation until nothing is written any more."""
    before, quiet, pods = outcome.before, outcome.quiet, outcome.pods
    cpu_ms = {name: (quiet.cpu_s[name] - before.cpu_s[name]) * 1000 / pods for name in before.cpu_s}
    bound_ms = {
        name: (outcome.bound.cpu_s[name] - before.cpu_s[name]) * 1000 / pods for name in cpu_ms
    }
    # Some writes of a row that was too slow are for pods that were not bound: don't count them.
    counted = quiet.writes - before.writes if pods == outcome.created else Counter[str]()
    writes = {
        what: count / pods
        for what, count in sorted(counted.items())
        if count / pods >= _LEAST_WRITES
    }
    ours_s = sum(outcome.bound.cpu_s[name] - before.cpu_s[name] for name in before.cpu_s)
    others_s = outcome.bound.machine_s - before.machine_s - ours_s
    return {
        "row": outcome.row.key,
        "what": outcome.row.title,
        "pods": pods,
        "podsPerSecond": pods / outcome.bound_s,
        "boundSeconds": outcome.bound_s,
        "cpuMsPerPod": dict(sorted(cpu_ms.items(), key=lambda item: -item[1])),
        "cpuMsPerPodBound": bound_ms,
        "cpuMsPerPodTotal": sum(cpu_ms.values()),
        "cpuMsPerPodUntilBound": ours_s * 1000 / pods,
        "writesPerPod": writes,
        "writesPerPodTotal": sum(writes.values()),
        "coresOfOtherWork": others_s / (outcome.bound.at_s - before.at_s),
        "profile": {name: groups(path) for name, path in outcome.stacks.items()},
    }


def in_words(result: dict[str, Any]) -> str:
    """The figures as text for people."""
    rows = result["rows"]
    lines = [
        result["machine"],
        f"Kubernetes {result['kubernetes']}; {result['nodes']} nodes × {result['gpusPerNode']} "
        f"GPUs, {result['full']:.0%} full; {result['pods']} pods{_in_groups(result['gang'])}",
        "",
    ]
    lines += [_line(row) for row in rows]
    lines += [
        f"  ({row['row']}) is {row['podsPerSecond'] / rows[0]['podsPerSecond']:.2f} × "
        f"({rows[0]['row']}) in pods/s"
        for row in rows[1:]
    ]
    lines += _table("CPU ms per pod, until the last is bound", rows, "cpuMsPerPodBound")
    lines += _table("CPU ms per pod, until nothing is written", rows, "cpuMsPerPod")
    lines += _table("API writes per pod", rows, "writesPerPod")
    for row in rows:
        for program, profile in row["profile"].items():
            lines += ["", f"{program} of row ({row['row']}): {profile['samples']} samples"]
            for view in ("services", "libraries"):
                lines.append(f"  by {view}")
                lines += [f"    {share:6.1%}  {name}" for name, share in profile[view].items()]
    return "\n".join(lines)


def _in_groups(gang: int) -> str:
    return f" in PodGroups of {gang}" if gang else ""


def _line(row: dict[str, Any]) -> str:
    return (
        f"  ({row['row']}) {row['what']:<32} {row['podsPerSecond']:7.1f} pods/s   "
        f"{row['cpuMsPerPodTotal']:6.1f} ms CPU/pod, {row['cpuMsPerPodUntilBound']:6.1f} until "
        f"{row['pods']} are bound   {row['writesPerPodTotal']:5.2f} writes/pod   "
        f"(other work: {row['coresOfOtherWork']:.1f} cores)"
    )


def _table(title: str, rows: Sequence[dict[str, Any]], key: str) -> list[str]:
    names = dict.fromkeys(name for row in rows for name in row[key])
    head = "".join(f"{'(' + row['row'] + ')':>9}" for row in rows)
    lines = ["", f"  {title:<44}{head}"]
    for name in names:
        cells = "".join(f"{row[key].get(name, 0):9.2f}" for row in rows)
        lines.append(f"    {name:<42}{cells}")
    return lines


def _chosen(text: str) -> list[Row]:
    known = {row.key: row for row in ROWS}
    keys = [key.strip() for key in text.split(",") if key.strip()]
    if not keys or any(key not in known for key in keys):
        raise click.BadParameter(
            f"{text!r}: expected some of {', '.join(known)}, separated by commas",
            param_hint="--rows",
        )
    return [known[key] for key in keys]


def _run(row: Row, size: Size, profile: Path | None) -> Outcome:
    click.echo(f"({row.key}) {row.title}", err=True)
    try:
        return asyncio.run(run_row(row, size, _progress, profile))
    except DrayError as error:
        raise click.ClickException(str(error)) from error


def _progress(line: str) -> None:
    click.echo(f"  {line}", err=True)


if __name__ == "__main__":
    main()
