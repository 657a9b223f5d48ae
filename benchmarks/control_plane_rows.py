"""The rows that are compared: the scheduler, its cluster, and the figures of its pods."""

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.control_plane_bound import Bound
from benchmarks.control_plane_clusters import NAME, PROFILED, Cluster, Progress, cluster_of
from benchmarks.control_plane_fleet import NAMESPACE, Size, pod, pod_group
from benchmarks.control_plane_meter import Meter, Reading
from benchmarks.node_fleet import run_limited
from dray.api.errors import PermanentError
from dray.kube.ports import NATIVE_POD_GROUPS, PODS, Kube, Object
from dray_sandbox.paths import stack_directory

WARM_UP = 16
"""Pods that are bound before anything is measured."""
_QUIET_S = 3.0
_QUIET_WITHIN_S = 180.0


@dataclass(frozen=True, slots=True)
class Row:
    """One way to bind pods to nodes."""

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
class Outcome:
    """The measurements of a row."""

    row: Row
    pods: int
    """Bound pods; fewer than were created if the time was too short."""
    created: int
    bound_s: float
    """From the first creation to the last binding."""
    before: Reading
    bound: Reading
    quiet: Reading
    """When writes had ended, so that later reports count, too."""
    stacks: Mapping[str, Path] = field(default_factory=dict)
    """Profiles by program."""


async def run_row(row: Row, size: Size, progress: Progress, profile: Path | None) -> Outcome:
    """Build the row's cluster, create its pods, and measure until all is quiet.

    ``profile``: the folder for profiles; None: no profiles.
    A row that takes longer than ``size.within_s`` is measured until then.
    Raises PermanentError if a program could not be started, or if the warm-up is not bound.
    """
    async with cluster_of(size, progress, profile, dray=row.dray) as cluster:
        bound = Bound(cluster.kube)
        watching = asyncio.create_task(bound.run(), name="bound")
        try:
            await _create(cluster.kube, row, "warm-up", WARM_UP, size.gang)
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
    creating = asyncio.create_task(_create(cluster.kube, row, "pod", size.pods, size.gang))
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


async def _create(kube: Kube, row: Row, name: str, count: int, gang: int) -> None:
    """Create the pods, and before them their groups of ``gang`` pods."""
    groups = []
    for first in range(0, count, gang) if gang else ():
        groups.append(f"{name}-{first}")
        made = pod_group(groups[-1], min(gang, count - first))
        await kube.create(NATIVE_POD_GROUPS, made, NAMESPACE)
    pods = [
        pod(
            f"{name}-{number}",
            annotated=row.dray,
            claims=row.claims,
            group=groups[number // gang] if gang else "",
        )
        for number in range(count)
    ]

    async def one(obj: Object) -> None:
        await kube.create(PODS, obj, NAMESPACE)

    await run_limited(one, pods)


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
