"""The rows that are compared: who schedules, on what cluster, and how its pods fare.

Every row has a control plane of its own, started for it and empty, on the same machine.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.control_plane_bound import Bound
from benchmarks.control_plane_fleet import (
    DEDICATED,
    NAMESPACE,
    POOL,
    Size,
    base_template,
    derived_template,
    held_claims,
    pod,
    state_of,
)
from benchmarks.control_plane_meter import Meter, Reading
from dray.bus.jetstream import connect as connect_bus
from dray.domain.errors import PermanentError
from dray.kube.api import connect as connect_kube
from dray.kube.ports import (
    CLAIMS,
    NAMESPACES,
    PODS,
    POLICIES,
    POOLS,
    TEMPLATES,
    Kube,
    Object,
)
from dray_sandbox.access import make_credentials
from dray_sandbox.controlplane.build import build
from dray_sandbox.controlplane.launch import API_SERVER, start_control_plane
from dray_sandbox.fleet import Fleet, at_once
from dray_sandbox.layout import StackOptions
from dray_sandbox.objects import Installer, documents
from dray_sandbox.places import checkout, stack_directory
from dray_sandbox.processes import Program, Runner
from dray_sandbox.stack import Stack

NAME = "bench"
WARM_UP = 16
"""Pods that are bound before anything is measured."""
_QUIET_S = 3.0
_QUIET_WITHIN_S = 180.0
PROFILED = ("claim-controller", "allocator", "webhook")
SAMPLED = 0.01
"""Share of pods with a trace, as an installation of this size would have it."""
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Row:
    """One way to get pods onto nodes."""

    key: str
    title: str
    dray: bool = False
    claims: bool = False


ROWS = (
    Row("a", "kube-scheduler with claims", claims=True),
    Row("b", "dray on dedicated nodes", dray=True),
    Row("c", "kube-scheduler without claims"),
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A control plane with its fleet, ready for pods."""

    kube: Kube
    kubeconfig: Path
    """The administrator's."""
    pids: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured of a row."""

    row: Row
    pods: int
    """Bound ones; fewer than were created where the time did not suffice."""
    created: int
    bound_s: float
    """From the first creation to the last binding."""
    before: Reading
    bound: Reading
    quiet: Reading
    """Once nothing was written any more: what is told after the fact counts, too."""
    stacks: Mapping[str, Path] = field(default_factory=dict)
    """Profiles by program."""


class _Programs(Runner):
    """Programs as they are measured: no audit log, and a profiler around services on request."""

    def __init__(self, logs: Path, profile: Path | None = None) -> None:
        super().__init__(logs)
        self._profile = profile

    async def start(self, program: Program) -> None:
        argv = program.argv
        if program.name == API_SERVER:
            argv = tuple(one for one in argv if not one.startswith("--audit-"))
        elif program.name in PROFILED and self._profile is not None:
            python, _, *module = argv
            argv = (python, "-m", "benchmarks.sampled", str(self._profile), *module)
        await super().start(replace(program, argv=argv))


async def run_row(row: Row, size: Size, progress: Progress, profile: Path | None) -> Outcome:
    """Build the row's cluster, create its pods, and measure until all is quiet.

    ``profile``: the folder that profiles are written to; None: nothing is profiled.
    A row that takes longer than ``size.within_s`` is measured until then.
    Raises PermanentError for what could not be started, or where not even the warm-up is bound.
    """
    async with _cluster(row, size, progress, profile) as cluster:
        bound = Bound(cluster.kube)
        watching = asyncio.create_task(bound.run(), name="bound")
        try:
            await _create(cluster.kube, row, "warm-up", WARM_UP)
            if not await bound.until(WARM_UP, size.within_s):
                raise PermanentError(
                    f"{bound.count} of the first {WARM_UP} pods were bound within "
                    f"{size.within_s:g} s; the logs are in {stack_directory(NAME) / 'logs'}"
                )
            meter = Meter(cluster.kubeconfig, cluster.pids)
            await _quiet(meter)
            progress(f"  creating {size.pods} pods")
            return await _measure(row, size, cluster, bound, meter, progress, profile)
        finally:
            watching.cancel()
            await asyncio.wait([watching])


async def _measure(
    row: Row,
    size: Size,
    cluster: Cluster,
    bound: Bound,
    meter: Meter,
    progress: Progress,
    profile: Path | None,
) -> Outcome:
    profiled = {name: pid for name, pid in cluster.pids.items() if row.dray and name in PROFILED}
    _toggle(profiled if profile else {})
    before = await meter.read()
    began_s = time.monotonic()
    creating = asyncio.create_task(_create(cluster.kube, row, "pod", size.pods))
    in_time = await bound.until(
        WARM_UP + size.pods,
        size.within_s,
        lambda count: progress(f"  {count - WARM_UP} bound"),
    )
    pods, bound_s = bound.count - WARM_UP, bound.last_s - began_s
    after = quiet = await meter.read()
    await creating
    if not pods:
        raise PermanentError(f"none of {size.pods} pods was bound within {size.within_s:g} s")
    if in_time:
        progress(f"  all bound after {bound_s:.1f} s; waiting until nothing is written any more")
        quiet = await _quiet(meter)
    stacks = {}
    if profile is not None:
        _toggle(profiled)
        files = {name: profile / f"{pid}.stacks" for name, pid in profiled.items()}
        stacks = {name: await asyncio.to_thread(_written, path) for name, path in files.items()}
    return Outcome(row, pods, size.pods, bound_s, before, after, quiet, stacks)


async def _create(kube: Kube, row: Row, name: str, count: int) -> None:
    pods = [
        pod(f"{name}-{number}", annotated=row.dray, claims=row.claims) for number in range(count)
    ]

    async def one(obj: Object) -> None:
        await kube.create(PODS, obj, NAMESPACE)

    await at_once(one, pods)


async def _quiet(meter: Meter) -> Reading:
    """The counters once ``_QUIET_S`` passed without a write."""
    deadline_s = time.monotonic() + _QUIET_WITHIN_S
    before = await meter.read()
    while True:
        await asyncio.sleep(_QUIET_S)
        now = await meter.read()
        if now.writes == before.writes:
            return before
        if now.at_s > deadline_s:
            moved = ", ".join(f"{n} {what}" for what, n in (now.writes - before.writes).items())
            raise PermanentError(f"still written after {_QUIET_WITHIN_S:g} s: {moved}")
        before = now


@contextlib.asynccontextmanager
async def _cluster(
    row: Row, size: Size, progress: Progress, profile: Path | None
) -> AsyncIterator[Cluster]:
    starting = _with_dray(size, progress, profile) if row.dray else _without_dray(size, progress)
    async with starting as cluster:
        await _hold(cluster.kube, size, progress)
        yield cluster


@contextlib.asynccontextmanager
async def _without_dray(size: Size, progress: Progress) -> AsyncIterator[Cluster]:
    folder = stack_directory(NAME)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    async with contextlib.AsyncExitStack() as stack:
        runner = _Programs(folder / "logs")
        stack.push_async_callback(runner.stop_all)
        credentials = make_credentials(folder / "access")
        binary = await build(progress)
        endpoint = await start_control_plane(
            runner, binary, folder / "kubernetes", credentials, context=NAME
        )
        chart = checkout() / "deploy" / "helm" / "dray" / "files" / "deviceclass.yaml"
        async with Installer(endpoint) as installer:
            await installer.apply(documents(chart))
        kube = await connect_kube(str(endpoint.admin_kubeconfig), user_agent=NAME)
        stack.push_async_callback(kube.close)
        await kube.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await kube.create(TEMPLATES, derived_template(), NAMESPACE)
        nodes = Fleet(kube, size.simulated(), state_of=lambda node: state_of(node, dray=False))
        await nodes.publish(_every(size.nodes, "nodes", progress))
        yield Cluster(kube, endpoint.admin_kubeconfig, runner.pids())


@contextlib.asynccontextmanager
async def _with_dray(
    size: Size, progress: Progress, profile: Path | None
) -> AsyncIterator[Cluster]:
    settings = {"DRAY_WEBHOOK__SAMPLING_RATIO": str(SAMPLED)}
    running = Stack(StackOptions(name=NAME, control_plane="real", settings=settings), progress)
    running.runner = _Programs(running.directory / "logs", profile)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(running)
        record = running.record
        kube = await connect_kube(record.kubeconfig, user_agent=NAME)
        stack.push_async_callback(kube.close)
        bus = await connect_bus(
            record.nats_url, name=NAME, user="admin", password=record.nats_passwords["admin"]
        )
        stack.push_async_callback(bus.close)
        await kube.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await kube.create(TEMPLATES, base_template(), NAMESPACE)
        policy = {"metadata": {"name": POOL}, "spec": {"dra": {"enable": True}}}
        await kube.create(POLICIES, policy)
        spec = {"dedicated": True, "schedulingConfigTemplate": POOL}
        await kube.create(POOLS, {"metadata": {"name": POOL}, "spec": spec})
        fleet = Fleet(
            kube,
            size.simulated(),
            bus=bus,
            state_of=lambda node: state_of(node, dray=True),
            taints=(DEDICATED,),
        )
        await fleet.publish(_every(size.nodes, "nodes", progress))
        yield Cluster(kube, Path(record.kubeconfig), running.runner.pids())


async def _hold(kube: Kube, size: Size, progress: Progress) -> None:
    """Write the claims that hold cards, and their statuses."""
    told, done = _every(size.nodes, "held claims", progress), 0

    async def one(held: tuple[Object, Object]) -> None:
        nonlocal done
        claim, status = held
        await kube.create(CLAIMS, claim, NAMESPACE)
        await kube.patch(CLAIMS, claim["metadata"]["name"], status, NAMESPACE, subresource="status")
        done += 1
        told(done)

    await at_once(one, held_claims(size))


def _every(total: int, what: str, progress: Progress) -> Callable[[int], None]:
    def told(count: int) -> None:
        if count % 1000 == 0 or count == total:
            progress(f"  {count} of {total} {what}")

    return told


def _toggle(pids: Mapping[str, int]) -> None:
    """Begin or end the sampling of these programs."""
    for pid in pids.values():
        os.kill(pid, signal.SIGUSR1)


def _written(path: Path, within_s: float = 10.0) -> Path:
    """The file, once the profiled process has written it; blocks meanwhile."""
    deadline_s = time.monotonic() + within_s
    while not path.exists():
        if time.monotonic() > deadline_s:
            raise PermanentError(f"no profile in {path} after {within_s:g} s")
        time.sleep(0.05)
    return path
