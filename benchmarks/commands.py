"""How long a new user waits for commands: ``python -m benchmarks.commands``.

Starts a stack on each control plane and times `dray up`, `dray explain` and `dray --help` from
outside, as processes. CPU time is that of the process and its children, as the kernel counts it. A
pod of a new shape waits in admission until its derived template exists; a pod of a known shape does
not. Both are timed from the request to the answer. With ``--gpus 100000`` the sandbox also gets
that many GPUs, on nodes without kubelets, before a waiting pod is explained; this takes minutes.
Exit code 1: a median is over its limit. The limits are for a machine with 2 cores that does nothing
else.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from benchmarks.end_to_end import configure, pod
from benchmarks.machine import machine
from benchmarks.node_fleet import NodeFleet
from dray.api.errors import PermanentError
from dray.api.names import TFLOPS_REQUEST
from dray.kube.api import connect
from dray.kube.ports import PODS, Kube
from dray_cli.explain import fetch_explanation
from dray_node_agent.decisions.inventory import NodeState
from dray_sandbox.layout import DEFAULT_GPUS, simulated_nodes
from dray_sandbox.stack_file import read_stack_file

_NAME = "bench"
_DRAY = str(Path(sys.executable).with_name("dray"))
_PLANES = ("sandbox", "real")
_WAITING = "waits"
_POOL = "my-gpu-pool"
_EXPLAINED_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Row:
    """The medians of a command, and their limits; None: it has none."""

    what: str
    wall_s: float
    cpu_s: float
    most_wall_s: float | None = None
    most_cpu_s: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether a limit is exceeded."""
        return self.wall_s > (self.most_wall_s or self.wall_s) or self.cpu_s > (
            self.most_cpu_s or self.cpu_s
        )

    def line(self) -> str:
        """The row as text."""
        wall, cpu = (
            f" (≤ {most:g})" if most else "" for most in (self.most_wall_s, self.most_cpu_s)
        )
        mark = "  OVER ITS LIMIT" if self.is_over else ""
        return f"{self.what:<24} {self.wall_s:6.2f} s{wall:<8} CPU {self.cpu_s:5.2f} s{cpu}{mark}"


def _run(*arguments: str, **environment: str) -> tuple[float, float]:
    """Wall time and CPU time of a command in seconds; its output is discarded."""
    began, used = time.monotonic(), os.times()
    subprocess.run(
        [_DRAY, *arguments], env=os.environ | environment, check=True, capture_output=True
    )
    now = os.times()
    cpu_s = now.children_user + now.children_system - used.children_user - used.children_system
    return time.monotonic() - began, cpu_s


def _row(what: str, runs: list[tuple[float, float]], **limits: float) -> Row:
    walls, cpus = zip(*runs, strict=True)
    return Row(what, statistics.median(walls), statistics.median(cpus), **limits)


def measure(plane: str, times: int) -> list[Row]:
    """Start a stack ``times`` times; explain a pod of the last one."""
    ups = []
    for _ in range(times):
        ups.append(_run("up", "--detach", "--control-plane", plane, "--stack", _NAME))
        explained, admitted = ([], {}) if len(ups) < times else _on_stack(times)
        _run("down", "--stack", _NAME)
    return [
        _row(f"dray up, {plane}", ups, most_wall_s=6.0 if plane == "sandbox" else 9.0),
        _row(f"dray explain, {plane}", explained, most_cpu_s=0.4),
        *(_row(f"{what}, {plane}", runs) for what, runs in admitted.items()),
    ]


def measure_fleet(gpus: int, times: int) -> Row:
    """Explain a pod that waits in a pool with ``gpus`` GPUs."""
    _run("up", "--detach", "--control-plane", "sandbox", "--nodes", "1", "--stack", _NAME)
    try:
        kubeconfig = _kubeconfig()
        asyncio.run(_create_waiting(kubeconfig, gpus - DEFAULT_GPUS))
        explained = _explained(kubeconfig, times)
    finally:
        _run("down", "--stack", _NAME)
    return _row(f"dray explain, {gpus} GPUs", explained, most_cpu_s=1.0)


def _kubeconfig() -> str:
    stack = read_stack_file(_NAME)
    if stack is None:
        raise PermanentError("the stack has ended")
    return stack.kubeconfig


def _on_stack(times: int) -> tuple[list[tuple[float, float]], dict[str, list[tuple[float, float]]]]:
    """Runs of `dray explain`, and of the creation of pods by whether their shape is known."""
    kubeconfig = _kubeconfig()
    asyncio.run(_create_waiting(kubeconfig))
    return _explained(kubeconfig, times), asyncio.run(_admitted(kubeconfig, times))


def _explained(kubeconfig: str, times: int) -> list[tuple[float, float]]:
    explain = ("explain", f"pod/{_WAITING}", "--kubeconfig", kubeconfig)
    _run(*explain)
    return [_run(*explain) for _ in range(times)]


async def _admitted(kubeconfig: str, times: int) -> dict[str, list[tuple[float, float]]]:
    """Wall times of creating pods that wait; the CPU is the servers', and not measured."""
    kube = await connect(kubeconfig, user_agent="dray-bench")
    try:
        return {
            "pod of a new shape": [
                await _create(kube, f"new-{number}", 2_000_000 + number) for number in range(times)
            ],
            "pod of a known shape": [
                await _create(kube, f"known-{number}", 2_000_000) for number in range(times)
            ],
        }
    finally:
        await kube.close()


async def _create(kube: Kube, name: str, tflops: int) -> tuple[float, float]:
    wanted = pod(name, _POOL)
    wanted["metadata"]["annotations"][TFLOPS_REQUEST] = str(tflops)
    began = time.monotonic()
    await kube.create(PODS, wanted, "default")
    return time.monotonic() - began, 0.0


async def _create_waiting(kubeconfig: str, more_gpus: int = 0) -> None:
    """Create a pod that waits because no GPU has enough TFLOPS; before it, add GPUs on nodes
    without kubelets."""
    kube = await connect(kubeconfig, user_agent="dray-bench")
    try:
        await configure(kube)
        if more_gpus:
            made = simulated_nodes(-(-more_gpus // DEFAULT_GPUS), pools=(_POOL,))
            nodes = [replace(one, name=f"fleet-{one.name}") for one in made]
            await NodeFleet(
                kube, nodes, state_of=lambda node: NodeState(node.name, pool=_POOL)
            ).publish()
        waits = pod(_WAITING, _POOL)
        waits["metadata"]["annotations"][TFLOPS_REQUEST] = "1000000"
        await kube.create(PODS, waits, "default")
        async with asyncio.timeout(_EXPLAINED_WITHIN_S + more_gpus / 500):
            found = await fetch_explanation(kube, "default", _WAITING)
            while not found.reasons:
                await asyncio.sleep(0.1)
                found = await fetch_explanation(kube, "default", _WAITING)
    finally:
        await kube.close()


@click.command()
@click.option("--times", default=5, show_default=True, help="How many times each command is run.")
@click.option("--real/--no-real", default=True, help="Also on the real control plane (needs Go).")
@click.option("--gpus", default=0, help="Also explain in a pool with so many GPUs.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def main(times: int, real: bool, gpus: int, output: str) -> None:
    """Time `dray --help`, `dray up`, `dray explain` and admission on this machine."""
    _run("--help")
    rows = [_row("dray --help", [_run("--help") for _ in range(times)], most_wall_s=0.15)]
    for plane in _PLANES if real else _PLANES[:1]:
        rows += measure(plane, times)
    if gpus:
        rows.append(measure_fleet(gpus, times))
    if output == "json":
        click.echo(json.dumps({"machine": machine(), "rows": [asdict(row) for row in rows]}))
    else:
        click.echo("\n".join([machine(), *(row.line() for row in rows)]))
    raise SystemExit(any(row.is_over for row in rows))


if __name__ == "__main__":
    main()
