"""A claim-controller and an allocator in a large cluster: ``python -m benchmarks.leader``.

An in-memory API server (``leader_api``), which is read as a real one, has 5 000 nodes with eight
cards, 100 000 pods (half of them foreign) with a claim each, 1 000 pools and 500 namespaces. The
facts are in a real nats-server. With ``--api real`` the API server is a real one, and the cluster
is a fifth as large (``leader_real``). Two claim-controllers and an allocator, which serves all
pools, run as separate processes. These figures of the claim-controllers are measured:

ready     from the start of the first one until it leads and has published everything
steady    CPU time at 100 changes a second
takeover  from the SIGTERM to the first one until the second leads and has published everything

For the allocator: the time from its start until it is ready, and the CPU time at the same changes.
For all: the longest step of the event loop, in CPU time (which does not grow if another process
interrupts the step), and the most memory. CPU times until ready and of the takeover are printed,
too: on a machine with other work they say more than wall time. Exits with 1 if a figure is above
its limit.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import click
import msgspec

from benchmarks.control_plane_meter import process_cpu_s
from benchmarks.leader_process import Step
from benchmarks.leader_real import real_cluster
from benchmarks.machine import machine
from dray.bus.topology import ALLOCATOR, CLAIM_CONTROLLER
from dray_sandbox.nats_server import NatsAccess, start_nats
from dray_sandbox.processes import ProcessSpec, Runner
from dray_sandbox.tcp_ports import free_port

LIMITS: Final = {
    "ready_s": 20.0,
    "longest_step_s": 0.1,
    "most_mib": 1536.0,
    "steady_cpu_share": 0.4,
    "takeover_s": 15.0,
    "allocator_ready_s": 8.0,
    "allocator_longest_step_s": 0.1,
    "allocator_most_mib": 1024.0,
    "allocator_steady_cpu_share": 0.4,
}
"""The limits of the figures."""
RATE_PER_S: Final = 100
_API, _NATS = "api", "nats-server"
_FIRST, _SECOND, _ALLOCATOR = "claim-controller-1", "claim-controller-2", "allocator-1"
_MODULES: Final = {CLAIM_CONTROLLER: "dray_claim_controller", ALLOCATOR: "dray_allocator"}
_WITHIN_S: Final = 600.0
_POLL_S: Final = 0.1
_QUIET_SHARE: Final = 0.15
"""Share of a core."""
_SHOWN: Final = 5
"""How many of the longest steps are named."""


@dataclass(slots=True)
class Bench:
    """The programs, and the folder with their files."""

    runner: Runner
    folder: Path
    access: NatsAccess
    http: aiohttp.ClientSession
    kubeconfig: Path
    change: Callable[[int], Awaitable[None]]
    """Change this many objects a second from now on."""
    ports: dict[str, int]

    async def start(self, name: str) -> None:
        """Start a service; returns when it answers."""
        port = self.ports[name] = free_port()
        role = name.rpartition("-")[0]
        environment = {
            **self.access.environment(role),
            "DRAY_INSTANCE": name,
            "DRAY_HEALTH__PORT": str(port),
            "DRAY_LOG__LEVEL": "warning",
        }
        if role == CLAIM_CONTROLLER:
            environment["DRAY_KUBE__KUBECONFIG"] = str(self.kubeconfig)
        module = ("-m", "benchmarks.leader_process", _MODULES[role], str(self.steps_file(name)))
        argv = (sys.executable, *module)
        program = ProcessSpec(
            name, argv, environment, lambda: self._answers(name), _WITHIN_S, order=30
        )
        await self.runner.start(program)

    def steps_file(self, name: str) -> Path:
        """The file in which a claim-controller notes its long steps."""
        return self.folder / f"{name}.steps"

    async def until_leads(self, name: str) -> None:
        """Wait until it leads and has published everything."""
        await _until(lambda: self._leads(name))

    async def until_synced(self, name: str) -> None:
        """Wait until it is ready, leading or not."""
        await _until(lambda: self._is_ready(name))

    async def _leads(self, name: str) -> bool:
        metrics = await self._page(name, "metrics") or ""
        return "dray_leading 1.0" in metrics and await self._is_ready(name)

    async def _is_ready(self, name: str) -> bool:
        return await self._page(name, "readyz") is not None

    async def _page(self, name: str, page: str) -> str | None:
        try:
            async with self.http.get(f"http://127.0.0.1:{self.ports[name]}/{page}") as response:
                return await response.text() if response.status == 200 else None
        except (aiohttp.ClientError, OSError):
            return None

    async def _answers(self, name: str) -> bool:
        return await self._page(name, "healthz") is not None

    def most_mib(self, name: str) -> float:
        """The most memory that a program has used so far."""
        status = Path(f"/proc/{self.runner.pids()[name]}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    def cpu_s(self, name: str) -> float:
        """CPU time of a program so far."""
        return process_cpu_s(self.runner.pids()[name])

    def steps(self, name: str) -> list[Step]:
        """The long steps of a program, the longest first."""
        lines = self.steps_file(name).read_bytes().splitlines()
        found = [msgspec.json.decode(line, type=Step) for line in lines]
        return sorted(found, key=lambda step: step.cpu_s, reverse=True)


@asynccontextmanager
async def bench(*, small: bool, real: bool = False) -> AsyncIterator[Bench]:
    """An API server with the cluster, and a nats-server. Everything ends with the block."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runner = Runner(folder / "logs")
        try:
            access = await start_nats(runner, folder, sync_interval="2m", name=_NATS)
            async with aiohttp.ClientSession() as http:
                if real:
                    async with real_cluster(runner, folder, small=small) as cluster:
                        change, path = cluster.change, cluster.kubeconfig
                        yield Bench(runner, folder, access, http, path, change, {})
                else:
                    changing = await _start_memory_api(runner, http, folder, small=small)
                    path = folder / "kubeconfig"
                    yield Bench(runner, folder, access, http, path, changing, {})
        finally:
            await runner.stop_all()


async def _start_memory_api(
    runner: Runner, http: aiohttp.ClientSession, folder: Path, *, small: bool
) -> Callable[[int], Awaitable[None]]:
    """Start the in-memory API server; returns the function that changes its objects."""
    port = free_port()
    api = f"http://127.0.0.1:{port}"
    argv = (sys.executable, "-m", "benchmarks.leader_api", "--port", str(port))

    async def serves() -> bool:
        try:
            async with http.get(f"{api}/version") as response:
                return response.status == 200
        except (aiohttp.ClientError, OSError):
            return False

    async def change(rate_per_s: int) -> None:
        async with http.post(f"{api}/bench/churn", params={"rate": rate_per_s}) as response:
            response.raise_for_status()

    size = ("--small",) if small else ()
    await runner.start(ProcessSpec(_API, (*argv, *size), {}, serves, _WITHIN_S, order=5))
    _write_kubeconfig(folder / "kubeconfig", api)
    return change


def _write_kubeconfig(path: Path, api: str) -> None:
    name = "bench"
    named: dict[str, dict[str, Any]] = {
        "clusters": {"cluster": {"server": api}},
        "users": {"user": {}},
    }
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    for kind, entry in named.items():
        content[kind] = [{"name": name, **entry}]
    path.write_text(json.dumps(content))


async def measure(*, small: bool, real: bool, steady_s: float) -> dict[str, Any]:
    """All figures of a claim-controller, and the longest steps by name."""
    async with bench(small=small, real=real) as made:
        began_s = time.monotonic()
        await made.start(_FIRST)
        await made.until_leads(_FIRST)
        found = {"ready_s": time.monotonic() - began_s}
        found["ready_cpu_s"] = made.cpu_s(_FIRST)
        await _quiet(made, _FIRST)
        await made.start(_SECOND)
        await made.until_synced(_SECOND)
        await _quiet(made, _SECOND)
        began_s = time.monotonic()
        await made.start(_ALLOCATOR)
        await made.until_synced(_ALLOCATOR)
        found["allocator_ready_s"] = time.monotonic() - began_s
        found["allocator_ready_cpu_s"] = made.cpu_s(_ALLOCATOR)
        await _quiet(made, _ALLOCATOR)
        shares = await _steady(made, steady_s)
        found["steady_cpu_share"] = shares[_FIRST]
        found["allocator_steady_cpu_share"] = shares[_ALLOCATOR]
        found["first_most_mib"] = made.most_mib(_FIRST)
        began_s, before_s = time.monotonic(), made.cpu_s(_SECOND)
        stopping = asyncio.create_task(made.runner.stop(_FIRST))
        await made.until_leads(_SECOND)
        found["takeover_s"] = time.monotonic() - began_s
        found["takeover_cpu_s"] = made.cpu_s(_SECOND) - before_s
        await stopping
        await _quiet(made, _SECOND)
        found["second_most_mib"] = made.most_mib(_SECOND)
        found["most_mib"] = max(found["first_most_mib"], found["second_most_mib"])
        found["allocator_most_mib"] = made.most_mib(_ALLOCATOR)
        of_allocator = [(_ALLOCATOR, step) for step in made.steps(_ALLOCATOR)]
        found["allocator_longest_step_s"] = _longest_s(of_allocator)
        steps = [(name, step) for name in (_FIRST, _SECOND) for step in made.steps(name)]
        found["longest_step_s"] = _longest_s(steps)
        steps = sorted([*steps, *of_allocator], key=lambda entry: entry[1].cpu_s, reverse=True)
        found["long_steps"] = float(sum(step.cpu_s > LIMITS["longest_step_s"] for _, step in steps))
        named = [f"{step.cpu_s:.3f} s  {name}  {step.what}" for name, step in steps[:_SHOWN]]
        return {"figures": found, "longest_steps": named}


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(_WITHIN_S):
        while True:
            if await holds():
                return
            await asyncio.sleep(_POLL_S)


async def _quiet(made: Bench, name: str) -> None:
    """Wait until a program takes little CPU: its logs are open and its reports written."""

    async def is_quiet() -> bool:
        before_s = made.cpu_s(name)
        await asyncio.sleep(2.0)
        return made.cpu_s(name) - before_s < 2.0 * _QUIET_SHARE

    await _until(is_quiet)


def _longest_s(steps: list[tuple[str, Step]]) -> float:
    return max((step.cpu_s for _, step in steps), default=0.0)


async def _steady(made: Bench, steady_s: float) -> dict[str, float]:
    """Shares of a core that the leader and the allocator take."""
    await made.change(RATE_PER_S)
    await asyncio.sleep(2.0)
    began_s = time.monotonic()
    before_s = {name: made.cpu_s(name) for name in (_FIRST, _ALLOCATOR)}
    await asyncio.sleep(steady_s)
    took_s = time.monotonic() - began_s
    shares = {name: (made.cpu_s(name) - at_s) / took_s for name, at_s in before_s.items()}
    await made.change(0)
    return shares


@click.command(help=__doc__)
@click.option("--small", is_flag=True, help="A fiftieth of the cluster, to try the benchmark.")
@click.option(
    "--api",
    type=click.Choice(["memory", "real"]),
    default="memory",
    show_default=True,
    help="real: etcd and kube-apiserver with 1 000 nodes and 20 000 pods.",
)
@click.option("--steady", "steady_s", default=20.0, show_default=True, help="Seconds of changes.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def main(small: bool, api: str, steady_s: float, output: str) -> None:
    """Measure, print, and fail above the limits."""
    load = os.getloadavg()[0]
    found = asyncio.run(measure(small=small, real=api == "real", steady_s=steady_s))
    above = [name for name, most in LIMITS.items() if found["figures"][name] > most]
    if output == "json":
        rows = {"machine": machine(), "load": load, "limits": LIMITS, "above": above}
        click.echo(json.dumps({**rows, **found}, indent=2))
    else:
        click.echo(f"{machine()}, load {load:.1f}\n")
        for name, value in found["figures"].items():
            limit = f"  (at most {LIMITS[name]:g})" if name in LIMITS else ""
            click.echo(f"{name:20} {value:10.3f}{limit}")
        click.echo("\nlongest steps\n" + "\n".join(found["longest_steps"]))
        if above:
            click.echo(f"\nabove the limit: {', '.join(above)}")
    sys.exit(1 if above else 0)


if __name__ == "__main__":
    main()
