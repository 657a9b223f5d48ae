"""One seed on a running stack: users and faults, then peace, and the verdict."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field

from structlog.testing import capture_logs

from dray.api.devices import DeviceId
from dray.api.errors import DrayError, TemporaryError
from dray.kube.convert import slice_from
from dray.kube.ports import CLAIMS, EVENTS, PODS, SLICES, Kube, Listed, Object, Resource
from dray_sandbox.faults import leftovers, refusals
from dray_sandbox.faults.arena import NODES, connected
from dray_sandbox.faults.history import StackHistory, invariants_of
from dray_sandbox.faults.plan import CARDS_PER_NODE, FaultPlan, StackFault
from dray_sandbox.faults.users import PATIENCE_S, StackUsers, StuckStackError, sleep_until
from dray_sandbox.faults.watches import listed, watching
from dray_sandbox.simulation.invariants import QuietChecks
from dray_sandbox.simulation.refusals import LastingRefusal
from dray_sandbox.stack import Stack

_LOOK_EVERY_S = 0.4

Look = Callable[[dict[Resource, Listed]], list[str]]


@dataclass(slots=True)
class FaultOutcome:
    """What a seed came to."""

    plan: FaultPlan
    failures: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """What was done when, and what it came to; for people."""
    bound: int = 0

    def say(self, line: str) -> None:
        """Add a line and print it at once."""
        self.lines.append(line)
        print(line, flush=True)


class FaultTrial:
    """Plays one plan. The stack must be clean; it is again if nothing failed."""

    def __init__(self, stack: Stack, plan: FaultPlan) -> None:
        self._stack = stack
        self._plan = plan
        self._outcome = FaultOutcome(plan)
        self._nodes = stack.nodes_directory
        self._files: frozenset[str] = frozenset()
        self._processes = set(stack.runner.pids())
        self._devices: frozenset[DeviceId] = frozenset()
        self._refused: list[LastingRefusal] = []
        self._began_s = time.monotonic()

    async def run(self) -> FaultOutcome:
        """Play it to its end, or to the first thing that is wrong."""
        outcome = self._outcome
        outcome.say(f"\nseed {self._plan.seed}: {len(self._plan.wishes)} pods")
        for line in self._plan.lines():
            outcome.say(f"  {line}")
        # What the watches of this process log while the API server is away is no news.
        with capture_logs():
            return await self._check()

    async def _check(self) -> FaultOutcome:
        outcome = self._outcome
        async with connected(self._stack) as kube, watching(kube) as history:
            try:
                await self._play(kube, history)
            except DrayError as error:
                outcome.failures.append(str(error))
            invariants = history.checked()
            outcome.bound = invariants.bound
            outcome.failures += invariants.violations + self._ended()
            took_s = time.monotonic() - self._began_s
            verdict = "FAILED" if outcome.failures else "passed"
            for failure in outcome.failures:
                outcome.say(f"  {failure}")
            outcome.say(
                f"  {verdict} after {took_s:.1f} s: {invariants.bound} pods bound, "
                f"{len(history.changes)} changes seen"
            )
            return outcome

    async def _play(self, kube: Kube, history: StackHistory) -> None:
        now = await self._until(kube, "before the faults", _unpublished)
        self._devices = _devices(now)
        self._files = leftovers.files(self._nodes)
        users = StackUsers(kube)
        await self._storm(users, history)
        now = await self._until(kube, "after the faults", self._waits)
        if self._refused:
            self._say(f"no longer {self._refused[0]}")
            self._refused = []
            await users.retry(lambda: refusals.end(kube))
            now = await self._until(kube, "after the refusals", self._waits)
        running = _running(now[PODS])
        if len(running) < sum(wish.life_s is None for wish in self._plan.wishes):
            await self._make_room(users, running)
            await self._until(kube, "after room was made", self._waits)
        await self._delete_everything(users, history)
        await self._until(kube, "after the end", self._is_left)
        await self._until(kube, "the watches are behind", lambda now: _behind(history, now))

    async def _storm(self, users: StackUsers, history: StackHistory) -> None:
        began_s = time.monotonic()
        async with _first_error() as group:
            for wish in self._plan.wishes:
                group.create_task(users.live(wish, began_s))
            for fault in self._plan.faults:
                group.create_task(self._cause(fault, began_s, history, users))
        self._say("all faults are over")

    async def _make_room(self, users: StackUsers, running: list[tuple[str, str]]) -> None:
        dice = random.Random(self._plan.seed)
        for namespace, name in dice.sample(running, round(len(running) * self._plan.freed)):
            await users.delete(name, namespace)
        self._say(f"deleted some of {len(running)} for those that wait")

    async def _delete_everything(self, users: StackUsers, history: StackHistory) -> None:
        async with _first_error() as group:
            if self._plan.at_the_end is not None:
                now_s = time.monotonic()
                group.create_task(self._cause(self._plan.at_the_end, now_s, history, users))
            for wish in self._plan.wishes:
                group.create_task(users.delete(wish.name, wish.namespace))
        self._say("deleted everything")

    async def _cause(
        self, fault: StackFault, began_s: float, history: StackHistory, users: StackUsers
    ) -> None:
        await _moment(fault, began_s, history)
        stack, target = self._stack, fault.target
        self._say(f"{fault.kind} {target}")
        if fault.kind == "refuse":
            self._refused = [refusals.refusal(target)]
            await users.retry(lambda: refusals.begin(users.kube, target))
            return
        if fault.kind == "pause":
            stack.pause(target)
            await asyncio.sleep(fault.for_s)
            stack.resume(target)
            return
        await stack.kill(target)
        await asyncio.sleep(fault.for_s)
        if fault.kind == "empty":
            await stack.empty_nats()
        else:
            await stack.restart(target)
        self._say(f"{target} is ready again")

    async def _until(self, kube: Kube, when: str, look: Look) -> dict[Resource, Listed]:
        """What there is once ``look`` finds nothing to complain of. Raises StuckError."""
        deadline_s = time.monotonic() + PATIENCE_S
        found = ["the API server does not answer"]
        while time.monotonic() < deadline_s:
            with contextlib.suppress(TemporaryError):
                now = await listed(kube, *([EVENTS] if self._refused else []))
                if not (found := look(now)):
                    return now
            if dead := self._ended():
                raise StuckStackError(f"{when}: {'; '.join(dead)}")
            await asyncio.sleep(_LOOK_EVERY_S)
        raise StuckStackError("\n".join(f"{when}, {PATIENCE_S:g} s later: {one}" for one in found))

    def _waits(self, now: dict[Resource, Listed]) -> list[str]:
        """What is not as it should be although nothing is harmed any more."""
        invariants = invariants_of(now)
        gone = self._devices - _devices(now)
        return [
            *(f"{one} is not published" for one in sorted(map(str, gone))),
            *_strange(now[PODS].objects),
            *invariants.violations,
            *QuietChecks(invariants, lambda: (), lambda: self._refused).problems(),
        ]

    def _is_left(self, now: dict[Resource, Listed]) -> list[str]:
        nodes = self._stack.record.nodes
        gone = self._devices - _devices(now)
        return [
            *leftovers.objects(now),
            *leftovers.on_nodes(self._nodes, self._files, nodes),
            *(f"{one} is not published" for one in sorted(map(str, gone))),
        ]

    def _ended(self) -> list[str]:
        now = set(self._stack.runner.pids())
        return [f"{name} ended by itself" for name in sorted(self._processes - now)]

    def _say(self, what: str) -> None:
        self._outcome.say(f"  {time.monotonic() - self._began_s:6.2f} s  {what}")


@contextlib.asynccontextmanager
async def _first_error() -> AsyncIterator[asyncio.TaskGroup]:
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except* DrayError as errors:
        raise _leaf(errors) from errors


def _running(pods: Listed) -> list[tuple[str, str]]:
    return sorted(
        (pod["metadata"]["namespace"], pod["metadata"]["name"])
        for pod in pods.objects
        if pod["status"].get("phase") == "Running"
    )


def _strange(pods: Iterable[Object]) -> Iterator[str]:
    """Pods that no rule of the judge looks at: without a claim, ended, or refused by a node."""
    for pod in pods:
        name, status = pod["metadata"]["name"], pod["status"]
        if not pod["spec"].get("resourceClaims"):
            yield f"pod {name} was admitted without a claim"
        if status.get("phase") in ("Failed", "Succeeded"):
            why = status.get("reason") or status.get("message")
            yield f"pod {name} is {status['phase']}: {why}"


def _devices(now: dict[Resource, Listed]) -> frozenset[DeviceId]:
    slices = map(slice_from, now[SLICES].objects)
    return frozenset(
        DeviceId(one.driver, one.pool, device.name) for one in slices for device in one.devices
    )


def _unpublished(now: dict[Resource, Listed]) -> list[str]:
    found = len(_devices(now))
    return [] if found == NODES * CARDS_PER_NODE else [f"{found} cards are published"]


def _behind(history: StackHistory, now: dict[Resource, Listed]) -> list[str]:
    return [
        f"the watch of {resource.plural}"
        for resource, there in now.items()
        if not history.is_at(resource, there.objects)
    ]


async def _moment(fault: StackFault, began_s: float, history: StackHistory) -> None:
    if not fault.at_change:
        await sleep_until(began_s + fault.at_s)
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(began_s + fault.at_s - time.monotonic()):
            await history.has(fault.at_change, CLAIMS)


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
