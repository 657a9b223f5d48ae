"""A benchmark at two commits: ``python -m benchmarks.two_commits --base COMMIT claims``.

The benchmark runs in a tree of the other commit and in this one, in turns. For each figure it
prints the best run of both trees, and how many times as good the best of this tree is; after it,
the medians of all runs and their ratio. Other work on the machine only adds time, so the best of
many runs is moved least by it. The row ``yard`` is a loop that has nothing of dray in it: if the
best ones differ, there were too few runs. What the benchmark takes (``--gpus``) is given after
``--``. Both trees use the packages that this tree has installed.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.machine import machine
from tools.sizes import ROOT, sources


@dataclass(frozen=True, slots=True)
class Figures:
    """What is compared of a benchmark's JSON."""

    names: tuple[str, ...]
    """Fields that name a row."""
    measured: tuple[str, ...]
    """Fields of a row; more of a rate is better, less of the others."""
    rates: tuple[str, ...] = ()
    of_run: tuple[str, ...] = ()
    """Fields outside the rows."""


BENCHMARKS: Mapping[str, Figures] = {
    "allocator": Figures(("what", "gpus", "shapes"), ("cpu p50", "cpu p99"), of_run=("most_mib",)),
    "claims": Figures(
        ("placement", "gpus"),
        ("per_second", "allocator_cpu_us", "nats_cpu_us", "yard_us"),
        rates=("per_second",),
    ),
    "control_plane": Figures(
        ("row",), ("podsPerSecond", "cpuMsPerPodTotal"), rates=("podsPerSecond",)
    ),
    "from_nothing": Figures(("nodes", "claims"), ("ready_s", "ready_cpu_s", "cpu_s", "most_mib")),
}

Key = tuple[str, str]
"""A row's names, and a field."""


@click.command()
@click.option("--base", required=True, help="The other commit.")
@click.option("--rounds", default=10, show_default=True, help="Runs of each commit.")
@click.argument("benchmark", type=click.Choice(sorted(BENCHMARKS)))
@click.argument("arguments", nargs=-1)
def main(base: str, rounds: int, benchmark: str, arguments: tuple[str, ...]) -> None:
    """Compare a benchmark with another commit; ARGUMENTS are the benchmark's own."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "base"
        _git("worktree", "add", "--detach", "--quiet", str(tree), base)
        try:
            runs = _in_turns((tree, ROOT), rounds, benchmark, arguments)
        finally:
            _git("worktree", "remove", "--force", str(tree))
    click.echo(f"{machine()}, load {load:.1f} before; {base} and this tree, {rounds} runs of each")
    for key in runs[ROOT][0]:
        before, now = ([run[key] for run in runs[where]] for where in (tree, ROOT))
        click.echo(_line(key, before, now, is_rate=key[1] in BENCHMARKS[benchmark].rates))


def _in_turns(
    trees: tuple[Path, Path], rounds: int, benchmark: str, arguments: tuple[str, ...]
) -> dict[Path, list[dict[Key, float]]]:
    """The figures of all runs, by tree."""
    runs: dict[Path, list[dict[Key, float]]] = {tree: [] for tree in trees}
    for number in range(rounds):
        for tree in trees if number % 2 == 0 else reversed(trees):
            runs[tree].append(dict(_run(tree, benchmark, arguments)))
    return runs


def _run(tree: Path, benchmark: str, arguments: tuple[str, ...]) -> Iterator[tuple[Key, float]]:
    figures = BENCHMARKS[benchmark]
    paths = [str(tree / path.relative_to(ROOT)) for path in sources(ROOT).values()]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tree), *sorted(set(paths))])}
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", *arguments, "-o", "json"]
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    for row in found["rows"]:
        names = " ".join(str(row.get(name, "")) for name in figures.names)
        yield from (((names, field), float(row[field])) for field in figures.measured)
    yield from ((("run", field), float(found[field])) for field in figures.of_run)


def _line(key: Key, before: list[float], now: list[float], *, is_rate: bool) -> str:
    best = max if is_rate else min
    columns = []
    for figure in (best, statistics.median):
        ratio = figure(now) / figure(before) if is_rate else figure(before) / figure(now)
        columns.append(f"{figure(before):10.6g} {figure(now):10.6g} {ratio:5.2f} ×")
    return f"{key[0]:<24} {key[1]:<16}   best {columns[0]}   median {columns[1]}"


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
