"""The allocator's rows at two commits: ``python -m benchmarks.two_commits --base COMMIT``.

``benchmarks.allocator`` runs in this tree and in a tree of the other commit, in turns. It prints
the medians of the runs, in microseconds of CPU time, how many times as fast this tree is, and the
same divided by that of the row ``yard``, which tells how much other work the machine did. What
``benchmarks.allocator`` measures (``--gpus``, ``--shapes``) is given after ``--``.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import click

from benchmarks.machine import machine
from tools.sizes import ROOT, sources

_YARD, _QUANTILES = "cpu p50", ("cpu p50", "cpu p99")


@click.command()
@click.option("--base", required=True, help="The other commit.")
@click.option("--rounds", default=4, show_default=True, help="Runs of each commit.")
@click.argument("arguments", nargs=-1)
def main(base: str, rounds: int, arguments: tuple[str, ...]) -> None:
    """Compare with another commit; ARGUMENTS are those of `benchmarks.allocator`."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "base"
        _git("worktree", "add", "--detach", "--quiet", str(tree), base)
        try:
            found = _measure((tree, ROOT), rounds, arguments)
        finally:
            _git("worktree", "remove", "--force", str(tree))
    click.echo(f"{machine()}, load {load:.1f} before; {base} and this tree, {rounds} runs of each")
    for (what, size, quantile), (before, now) in found.items():
        yard_before, yard_now = found["yard", size, _YARD]
        by_yard = before / now * yard_now / yard_before
        ratios = f"{before / now:5.2f} ×  by the yard {by_yard:5.2f} ×"
        click.echo(f"{what:<9} {size:<24} {quantile}  {before:9.1f} {now:9.1f}  {ratios}")


def _measure(
    trees: tuple[Path, Path], rounds: int, arguments: tuple[str, ...]
) -> dict[tuple[str, str, str], tuple[float, float]]:
    """By row, size and quantile, the medians of the runs in both trees."""
    runs: dict[Path, dict[tuple[str, str, str], list[float]]] = {
        tree: defaultdict(list) for tree in trees
    }
    for number in range(rounds):
        for tree in trees if number % 2 == 0 else reversed(trees):
            for row in _rows(tree, arguments):
                size = f"{row['gpus']:,} GPUs, {row['shapes']} shapes"
                for quantile in _QUANTILES:
                    runs[tree][row["what"], size, quantile].append(row[quantile])
    base, now = (runs[tree] for tree in trees)
    return {key: (statistics.median(base[key]), statistics.median(now[key])) for key in now}


def _rows(tree: Path, arguments: tuple[str, ...]) -> list[dict[str, Any]]:
    paths = [str(tree / path.relative_to(ROOT)) for path in sources(ROOT).values()]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tree), *sorted(set(paths))])}
    command = [sys.executable, "-m", "benchmarks.allocator", "--no-peer", *arguments, "-o", "json"]
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return rows


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
