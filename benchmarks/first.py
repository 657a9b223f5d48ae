"""The baseline: ``python -m benchmarks.first``. Figures to compare with, not targets.

Prints the machine, then p50 and p99 of the webhook's handler and of the allocator's decision, and
p50 of the time from a pod's creation until it is prepared, on each control plane.
"""

import json
import sys
from typing import Any

import click

from benchmarks import admission, decision, end_to_end
from benchmarks.machine import machine, percentiles

NODES = (3, 125)


@click.command()
@click.option("--samples", default=500, show_default=True, help="Calls of handler and decision.")
@click.option("--pods", default=20, show_default=True, help="Pods per path, one at a time.")
@click.option("--real/--no-real", default=True, help="Also on the real control plane (needs Go).")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def main(samples: int, pods: int, real: bool, output: str) -> None:
    """Measure admission, decision and a pod's whole start on this machine."""
    results: list[dict[str, Any]] = []

    def note(what: str, unit: str, taken: list[float]) -> None:
        results.append({"what": what, "unit": unit, **percentiles(taken)})
        if output == "text":
            found = results[-1]
            line = f"p50 {found['p50']:9.2f}   p99 {found['p99']:9.2f} {unit}"
            click.echo(f"  {what:<58} {line}   n={found['samples']}")
            sys.stdout.flush()

    if output == "text":
        click.echo(f"{machine()}\n")
    note("admission handler", "ms", admission.measure(samples))
    for nodes in NODES:
        what = f"decision, {nodes * decision.GPUS_PER_NODE} GPUs"
        note(what, "µs", decision.measure(samples, nodes))
    for control_plane in ("sandbox", "real") if real else ("sandbox",):
        progress = _progress if output == "text" else _silent
        found = end_to_end.measure("real" if control_plane == "real" else "sandbox", pods, progress)
        for path, taken in found.items():
            note(f"created → prepared, {control_plane}, {path}", "ms", taken)
    if output == "json":
        click.echo(json.dumps({"machine": machine(), "results": results}, indent=2))


def _progress(line: str) -> None:
    click.echo(f"    {line}", err=True)


def _silent(line: str) -> None:
    """Print no progress: the output is only JSON."""


if __name__ == "__main__":
    main()
