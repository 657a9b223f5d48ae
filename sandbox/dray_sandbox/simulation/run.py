"""One seed from an empty cluster through faults to quiet, and the verdict."""

import asyncio
import contextlib
import itertools
import marshal
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS
from dray_allocator.state.decision_log import Reservation
from dray_sandbox.simulation.cluster import furnish
from dray_sandbox.simulation.explanations import silent
from dray_sandbox.simulation.facts import stale_facts
from dray_sandbox.simulation.fault_injector import FaultInjector
from dray_sandbox.simulation.invariants import QuietChecks
from dray_sandbox.simulation.logs import repeated_attempts
from dray_sandbox.simulation.loop import EPOCH_UNIX_S, VirtualLoop
from dray_sandbox.simulation.processes import NODES
from dray_sandbox.simulation.refusal_faults import ELECTED_S
from dray_sandbox.simulation.refusals import About, Case
from dray_sandbox.simulation.trace import SimulationTrace
from dray_sandbox.simulation.world import SimulatedWorld

_QUIET_WITHIN_S = 300.0
"""Void after 30 s, leases 15 s, exclusions and templates 10 s, backoffs: several in a row."""
_CALM_WITHIN_S = 150.0
"""Where nothing ended a term: 60 s are enough without a refusal."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much happens in one run."""

    pods: int = 16
    faults: int = 12
    seconds: float = 45.0
    only: tuple[str, ...] = ()
    """Kinds of faults; none named: the seed chooses."""
    case: Case | None = None
    """How certain requests are answered from a moment on, until it is quiet: then nothing that is
    named in ``only`` may end a term, and pods are told in time why they wait."""
    deaf: bool = False
    """Whether alarms count for nothing: then Kubernetes' objects alone are judged."""


@dataclass(slots=True)
class SimulationOutcome:
    """What a seed came to."""

    seed: int
    case: Case | None
    failures: list[str]
    digest: str
    lines: list[str]
    counts: dict[str, int] = field(default_factory=dict)
    bound: int = 0
    virtual_s: float = 0.0

    def report(self) -> str:
        """For people."""
        head = [f"seed {self.seed}: {failure}" for failure in self.failures]
        test = "test_seeds.py -k placed"
        if self.case is not None:
            name = "test_what_is_refused_for_one_keeps_nobody_else_waiting"
            test = f'"test_refusals.py::{name}[{self.case}]"'
        again = f"again: cd tests/chaos; DRAY_CHAOS_SEED={self.seed} python -m pytest {test}"
        faults = ", ".join(f"{name} {count}" for name, count in self.counts.items())
        return "\n".join([*self.lines, "", *head, f"faults: {faults}", again])


def simulate(
    seed: int,
    size: Size | None = None,
    *,
    keep: int = 400,
    more: Callable[[SimulatedWorld], None] = lambda _: None,
    play: Callable[[SimulatedWorld, Size], Awaitable[list[str]]] | None = None,
) -> SimulationOutcome:
    """Run one seed; ``more`` is called with its world before anything runs in it. ``play`` is what
    happens, in the place of faults that the seed chooses."""
    size = size or Size()
    loop = VirtualLoop()
    trace = SimulationTrace(loop, keep=keep)
    world: SimulatedWorld | None = None
    with _determined(seed, loop), trace.listening():
        try:
            world = SimulatedWorld(seed, loop, trace)
            more(world)
            if size.deaf:
                world.tolerated.add("")
            failures = loop.run_until_complete((play or _play)(world, size))
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


async def _play(world: SimulatedWorld, size: Size) -> list[str]:
    if size.case is not None:
        world.spare()
    await furnish(world.kube, NODES)
    for name in world.actors:
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
    world.trace.say("MONKEY", "peace")
    world.heal()
    await injector.repair()
    if await injector.fresh_eyes():
        world.disturb(ELECTED_S)
    quiet = QuietChecks(world.invariants, lambda: _sick(world), lambda: world.refusals)
    is_calm = size.case is not None
    within_s = _CALM_WITHIN_S if is_calm else _QUIET_WITHIN_S
    if failures := await _until_quiet(
        world, quiet, "after the faults", within_s=within_s, is_calm=is_calm
    ):
        return failures
    if world.refusals and injector.draws(0.5):
        await injector.lift()
        if failures := await _until_quiet(world, quiet, "after the refusals"):
            return failures
    world.trace.say("MONKEY", "all pods go")
    await injector.delete_everything()
    if world.refusals:
        if failures := await _until_quiet(world, quiet, "after the end, refused", empty=True):
            return failures
        await injector.lift()
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
    hot = [f"tried {one.count} times: {one}" for one in world.refusals if one.is_hot(now_s)]
    return [*world.invariants.violations, *world.alarms(), *world.quarrels, *hot]


def _calm_failures(world: SimulatedWorld) -> list[str]:
    """What is wrong where nothing happens that ends a term or holds everybody up."""
    told = silent(
        world.invariants.store,
        now_unix_s=world.loop.now_unix_s(),
        since_unix_s=EPOCH_UNIX_S + world.disturbed_s,
        exempt=lambda pod: any(refusal.is_about(pod) for refusal in world.refusals),
    )
    is_deserved = any(one.case.kind.about is About.PROCESS for one in world.refusals)
    return [*told, *([] if is_deserved else world.trace.endings)]


def _log_problems(world: SimulatedWorld, empty: bool) -> list[str]:
    found = []
    for name, state in world.allocators():
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
    """Whether devices may be held although nobody carries the decision out."""
    obj = world.invariants.store.of(CLAIMS).get((reservation.namespace, reservation.name))
    return any(
        refusal.is_about_node(reservation.node)
        or refusal.is_about_name(reservation.name)
        or (obj is not None and refusal.is_about_claim(claim_from(obj)))
        for refusal in world.refusals
    )


def _sick(world: SimulatedWorld) -> list[str]:
    return [device for board in world.boards.values() for device in board.sick_devices()]


class _Copying:
    """In place of the module ``copy``: a quarter of a run went into copies of JSON."""

    @staticmethod
    def deepcopy(obj: Any) -> Any:
        """Of plain JSON."""
        return marshal.loads(marshal.dumps(obj))


@contextlib.contextmanager
def _determined(seed: int, loop: VirtualLoop) -> Iterator[None]:
    """Nothing may come from the machine: time, randomness, identifiers."""
    before = random.getstate()
    random.seed(seed)
    ids = random.Random(f"{seed}-ids")

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=ids.getrandbits(128), version=4)

    real_gmtime = time.gmtime
    with (
        mock.patch("dray.kube.memory.copy", _Copying),
        mock.patch("dray.kube.memory_store.copy", _Copying),
        mock.patch("dray.bus.memory_store._created", itertools.count(1)),
        mock.patch("uuid.uuid4", uuid4),
        mock.patch("dray_allocator.service.replica.uuid4", uuid4),
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
    """Let what was cancelled end."""

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
