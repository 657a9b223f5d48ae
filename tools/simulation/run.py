"""Runs one seed, from an empty cluster through faults until the cluster is stable."""

import asyncio
import contextlib
import itertools
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from unittest import mock

from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS
from dray_allocator.state.domain import Reservation
from tools.simulation.bus_checks import other_readings, repeated_attempts, stale_facts
from tools.simulation.cluster import create_cluster
from tools.simulation.fault_injector import FaultInjector
from tools.simulation.invariants import QuietChecks, unexplained_pods
from tools.simulation.loop import EPOCH_UNIX_S, VirtualLoop
from tools.simulation.processes import POOL_OF_NODE
from tools.simulation.refusal_faults import ELECTED_S
from tools.simulation.refusals import Case, RefusalScope
from tools.simulation.trace import SimulationTrace
from tools.simulation.world import SimulatedWorld

_QUIET_WITHIN_S = 300.0
"""Enough for several of: voids 30 s, leases 15 s, exclusions and templates 10 s, backoff."""
_CALM_WITHIN_S = 150.0
"""The limit if no term ended. Without a refusal 60 s are enough."""


@dataclass(frozen=True, slots=True)
class Size:
    """Numbers of pods and faults, and options of one run."""

    pods: int = 16
    faults: int = 12
    seconds: float = 45.0
    only: tuple[str, ...] = ()
    """Names of faults; empty: the seed chooses."""
    case: Case | None = None
    """A lasting refusal. Then ``only`` must name no fault that ends a term, and the run also checks
    that waiting pods are explained in time."""
    ignore_alarms: bool = False
    """Whether to ignore alarms and check only Kubernetes' objects."""


@dataclass(slots=True)
class SimulationOutcome:
    """The result of one seed."""

    seed: int
    case: Case | None
    failures: list[str]
    digest: str
    lines: list[str]
    counts: dict[str, int] = field(default_factory=dict)
    bound: int = 0
    virtual_s: float = 0.0

    def report(self) -> str:
        """A readable report."""
        head = [f"seed {self.seed}: {failure}" for failure in self.failures]
        test = "test_seeds.py -k placed"
        if self.case is not None:
            name = "test_a_refusal_of_one_object_delays_no_other"
            test = f'"test_refusals.py::{name}[{self.case}]"'
        repeat = f"repeat: cd tests/chaos; DRAY_CHAOS_SEED={self.seed} python -m pytest {test}"
        faults = ", ".join(f"{name} {count}" for name, count in self.counts.items())
        return "\n".join([*self.lines, "", *head, f"faults: {faults}", repeat])


def simulate(
    seed: int,
    size: Size | None = None,
    *,
    keep: int = 400,
    prepare: Callable[[SimulatedWorld], None] = lambda _: None,
    script: Callable[[SimulatedWorld, Size], Awaitable[list[str]]] | None = None,
) -> SimulationOutcome:
    """Run one seed. ``prepare`` is called with the world before the start; ``script`` replaces the
    faults that the seed chooses."""
    size = size or Size()
    loop = VirtualLoop()
    trace = SimulationTrace(loop, most_lines=keep)
    world: SimulatedWorld | None = None
    with _deterministic(seed, loop), trace.recording_logs():
        try:
            world = SimulatedWorld(seed, loop, trace)
            prepare(world)
            if size.ignore_alarms:
                world.tolerated.add("")
            failures = loop.run_until_complete((script or _run_seed)(world, size))
            return SimulationOutcome(
                seed,
                size.case,
                failures,
                trace.digest,
                list(trace.lines),
                dict(sorted(world.counts.items())),
                world.invariants.bound,
                loop.time(),
            )
        finally:
            if world is not None:
                world.close()
            _drain(loop)
            loop.close()


async def _run_seed(world: SimulatedWorld, size: Size) -> list[str]:
    if size.case is not None:
        world.disable_call_faults()
    await create_cluster(world.kube, POOL_OF_NODE)
    for name in world.processes:
        world.start(name)
    injector = FaultInjector(
        world,
        pods=size.pods,
        faults=size.faults,
        until_s=size.seconds,
        only=size.only,
        case=size.case,
    )
    fault = asyncio.ensure_future(injector.run())
    while not fault.done():
        await asyncio.sleep(0.5)
        if failures := _failures(world) + (_calm_failures(world) if size.case else []):
            fault.cancel()
            await asyncio.gather(fault, return_exceptions=True)
            return failures
    await fault
    world.trace.record("FAULTS", "end of faults")
    world.end_faults()
    await injector.repair()
    if await injector.restart_some():
        world.extend_grace(ELECTED_S)
    quiet = QuietChecks(world.invariants, lambda: _unhealthy_devices(world), lambda: world.refusals)
    is_calm = size.case is not None
    within_s = _CALM_WITHIN_S if is_calm else _QUIET_WITHIN_S
    if failures := await _until_quiet(
        world, quiet, "after the faults", within_s=within_s, is_calm=is_calm
    ):
        return failures
    if world.refusals and injector.draws(0.5):
        await injector.lift_refusals()
        if failures := await _until_quiet(world, quiet, "after the refusals"):
            return failures
    world.trace.record("FAULTS", "delete all pods")
    await injector.delete_everything()
    if world.refusals:
        if failures := await _until_quiet(world, quiet, "after the end, refused", empty=True):
            return failures
        await injector.lift_refusals()
    return await _until_quiet(world, quiet, "after the end", empty=True)


async def _until_quiet(
    world: SimulatedWorld,
    quiet: QuietChecks,
    when: str,
    *,
    empty: bool = False,
    within_s: float = _QUIET_WITHIN_S,
    is_calm: bool = False,
) -> list[str]:
    end_s = world.loop.time() + within_s
    if failures := list(repeated_attempts(world.bus)):
        return failures
    while True:
        await asyncio.sleep(2.0)
        if failures := _failures(world) + (_calm_failures(world) if is_calm else []):
            return failures
        problems = quiet.problems() + _log_problems(world, empty)
        problems += stale_facts(world.bus, world.invariants.store, world.refusals)
        if not problems:
            return []
        if world.loop.time() > end_s:
            return [f"{when}: {problem}" for problem in problems]


def _failures(world: SimulatedWorld) -> list[str]:
    now_s = world.loop.time()
    retries = [
        f"tried {one.count} times: {one}"
        for one in world.refusals
        if one.is_retried_too_often(now_s)
    ]
    return [*world.invariants.violations, *world.alarms(), *world.unexpected_exits, *retries]


def _calm_failures(world: SimulatedWorld) -> list[str]:
    """Further failures in runs whose faults neither end a term nor delay every pod."""
    unexplained = unexplained_pods(
        world.invariants.store,
        now_unix_s=world.loop.now_unix_s(),
        since_unix_s=EPOCH_UNIX_S + world.grace_until_s,
        exempt=lambda pod: any(refusal.concerns_pod(pod) for refusal in world.refusals),
    )
    may_end = any(one.case.kind.scope is RefusalScope.PROCESS for one in world.refusals)
    return [*unexplained, *([] if may_end else world.trace.endings)]


def _log_problems(world: SimulatedWorld, empty: bool) -> list[str]:
    found: list[str] = []
    for name, state in world.allocators():
        found += other_readings(world.bus, name, state)
        for reservation in state.reservations():
            if reservation.stage.value == "held" and not _is_refused(world, reservation):
                found.append(
                    f"{name} still holds {reservation.allocation.node} for "
                    f"{reservation.name} attempt {reservation.attempt}"
                )
        if empty:
            found += [
                f"{name} still counts a use of claim {uid}"
                for uid, _ in state.device_usage.claims()
                if not world.refusals
            ]
    return found


def _is_refused(world: SimulatedWorld, reservation: Reservation) -> bool:
    """Whether a refusal may keep devices assumed without a claim's allocation. A deleted claim's
    pool is unknown, so any refusal about a pool may."""
    obj = world.invariants.store.of(CLAIMS).get((reservation.namespace, reservation.name))
    return any(
        (obj is None and refusal.case.kind.scope is RefusalScope.POOL)
        or refusal.concerns_node(reservation.node)
        or refusal.concerns_pod_name(reservation.name)
        or (obj is not None and refusal.concerns_claim(claim_from(obj)))
        for refusal in world.refusals
    )


def _unhealthy_devices(world: SimulatedWorld) -> list[str]:
    return [device for node_gpus in world.gpus.values() for device in node_gpus.unhealthy_devices()]


@contextlib.contextmanager
def _deterministic(seed: int, loop: VirtualLoop) -> Iterator[None]:
    """Take time, randomness and identifiers from the seed."""
    before = random.getstate()
    random.seed(seed)
    ids = random.Random(f"{seed}-ids")

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=ids.getrandbits(128), version=4)

    real_gmtime = time.gmtime
    with (
        mock.patch("dray.bus.memory_store._created", itertools.count(1)),
        mock.patch("uuid.uuid4", uuid4),
        mock.patch("dray_allocator.service.decision_logs.uuid4", uuid4),
        mock.patch("time.time", loop.wall_unix_s),
        mock.patch("time.monotonic", loop.time),
        mock.patch(
            "time.gmtime", lambda at=None: real_gmtime(loop.wall_unix_s() if at is None else at)
        ),
    ):
        try:
            yield
        finally:
            random.setstate(before)


def _drain(loop: VirtualLoop) -> None:
    """Cancel all tasks and wait for their end."""

    async def rest() -> None:
        for _ in range(50):
            left = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.sleep(1.0)

    loop.run_until_complete(rest())
    loop.run_until_complete(loop.shutdown_asyncgens())
