"""Runs one seed on a running stack and checks it."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field

from structlog.testing import capture_logs

from dray.api.devices import DeviceId
from dray.api.errors import DrayError, TemporaryError
from dray.kube.convert import slice_from
from dray.kube.ports import CLAIMS, EVENTS, PODS, SLICES, Kube, Listed, Object, Resource
from dray_sandbox.stack import Stack
from tools.faults import leftovers, refusals
from tools.faults.fault_stack import NODES, connected
from tools.faults.history import StackHistory, invariants_of, listed, watch_history
from tools.faults.plan import GPUS_PER_NODE, FaultPlan, StackFault
from tools.faults.users import TIMEOUT_S, NotReachedError, StackUsers, sleep_until
from tools.simulation.invariants import QuietChecks
from tools.simulation.refusals import LastingRefusal

_POLL_S = 0.4

Check = Callable[[dict[Resource, Listed]], list[str]]


@dataclass(slots=True)
class FaultOutcome:
    """The result of one seed."""

    plan: FaultPlan
    failures: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """Actions with their times, and results."""
    bound: int = 0

    def report(self, line: str) -> None:
        """Add a line and print it at once."""
        self.lines.append(line)
        print(line, flush=True)


class FaultTrial:
    """Runs one plan. The stack must be clean, and is clean again if nothing failed."""

    def __init__(self, stack: Stack, plan: FaultPlan) -> None:
        self._stack = stack
        self._plan = plan
        self._outcome = FaultOutcome(plan)
        self._nodes = stack.nodes_directory
        self._files: Counter[str] = Counter()
        self._processes = set(stack.runner.pids())
        self._devices: frozenset[DeviceId] = frozenset()
        self._refused: list[LastingRefusal] = []
        self._began_s = time.monotonic()

    async def run(self) -> FaultOutcome:
        """Run the plan to its end or its first failure."""
        outcome = self._outcome
        outcome.report(f"\nseed {self._plan.seed}: {len(self._plan.pods)} pods")
        for line in self._plan.lines():
            outcome.report(f"  {line}")
        # This process' watches log errors while the API server is down.
        with capture_logs():
            return await self._check()

    async def _check(self) -> FaultOutcome:
        outcome = self._outcome
        async with connected(self._stack) as kube, watch_history(kube) as history:
            try:
                await self._run(kube, history)
            except DrayError as error:
                outcome.failures.append(str(error))
            invariants = history.check_all()
            outcome.bound = invariants.bound
            outcome.failures += invariants.violations + self._ended()
            took_s = time.monotonic() - self._began_s
            result = "FAILED" if outcome.failures else "passed"
            for failure in outcome.failures:
                outcome.report(f"  {failure}")
            outcome.report(
                f"  {result} after {took_s:.1f} s: {invariants.bound} pods bound, "
                f"{len(history.changes)} changes seen"
            )
            return outcome

    async def _run(self, kube: Kube, history: StackHistory) -> None:
        now = await self._until(kube, "before the faults", _unpublished)
        self._devices = _devices(now)
        self._files = leftovers.files(self._nodes)
        users = StackUsers(kube)
        await self._run_faults(users, history)
        now = await self._until(kube, "after the faults", self._problems)
        if self._refused:
            self._report(f"end of {self._refused[0]}")
            self._refused = []
            await users.retry(lambda: refusals.end(kube))
            now = await self._until(kube, "after the refusals", self._problems)
        running = _running(now[PODS])
        if len(running) < sum(pod.life_s is None for pod in self._plan.pods):
            await self._make_room(users, running)
            await self._until(kube, "after room was made", self._problems)
        await self._delete_everything(users, history)
        await self._until(kube, "after the end", self._leftovers)
        await self._until(kube, "the watches are behind", lambda now: _behind(history, now))

    async def _run_faults(self, users: StackUsers, history: StackHistory) -> None:
        for name in self._plan.groups:
            await users.group(name, self._plan.size(name))
        began_s = time.monotonic()
        async with _first_error() as group:
            for pod in self._plan.pods:
                group.create_task(users.live(pod, began_s))
            for fault in self._plan.faults:
                group.create_task(self._cause(fault, began_s, history, users))
        self._report("all faults have ended")

    async def _make_room(self, users: StackUsers, running: list[tuple[str, str]]) -> None:
        draw = random.Random(self._plan.seed)
        for namespace, name in draw.sample(running, round(len(running) * self._plan.deleted_share)):
            await users.delete(name, namespace)
        self._report(f"deleted some of {len(running)} running pods for waiting ones")

    async def _delete_everything(self, users: StackUsers, history: StackHistory) -> None:
        async with _first_error() as group:
            if self._plan.final_fault is not None:
                now_s = time.monotonic()
                group.create_task(self._cause(self._plan.final_fault, now_s, history, users))
            for pod in self._plan.pods:
                group.create_task(users.delete(pod.name, pod.namespace))
        for name in self._plan.groups:
            await users.delete_group(name)
        self._report("deleted everything")

    async def _cause(
        self, fault: StackFault, began_s: float, history: StackHistory, users: StackUsers
    ) -> None:
        await _moment(fault, began_s, history)
        stack, target = self._stack, fault.target
        self._report(f"{fault.kind} {target}")
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
        self._report(f"{target} is ready again")

    async def _until(self, kube: Kube, when: str, look: Check) -> dict[Resource, Listed]:
        """The objects when ``look`` finds no problems. Raises NotReachedError."""
        deadline_s = time.monotonic() + TIMEOUT_S
        found = ["the API server does not answer"]
        while time.monotonic() < deadline_s:
            with contextlib.suppress(TemporaryError):
                now = await listed(kube, *([EVENTS] if self._refused else []))
                if not (found := look(now)):
                    return now
            if dead := self._ended():
                raise NotReachedError(f"{when}: {'; '.join(dead)}")
            await asyncio.sleep(_POLL_S)
        raise NotReachedError("\n".join(f"{when}, {TIMEOUT_S:g} s later: {one}" for one in found))

    def _problems(self, now: dict[Resource, Listed]) -> list[str]:
        """Problems that should not exist after all faults ended."""
        invariants = invariants_of(now)
        gone = self._devices - _devices(now)
        return [
            *(f"{one} is not published" for one in sorted(map(str, gone))),
            *_unexpected_pods(now[PODS].objects),
            *invariants.violations,
            *QuietChecks(invariants, lambda: (), lambda: self._refused).problems(),
        ]

    def _leftovers(self, now: dict[Resource, Listed]) -> list[str]:
        nodes = self._stack.record.nodes
        gone = self._devices - _devices(now)
        return [
            *leftovers.objects(now),
            *leftovers.node_leftovers(self._nodes, self._files, nodes),
            *(f"{one} is not published" for one in sorted(map(str, gone))),
        ]

    def _ended(self) -> list[str]:
        now = set(self._stack.runner.pids())
        return [f"{name} ended by itself" for name in sorted(self._processes - now)]

    def _report(self, what: str) -> None:
        self._outcome.report(f"  {time.monotonic() - self._began_s:6.2f} s  {what}")


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


def _unexpected_pods(pods: Iterable[Object]) -> Iterator[str]:
    """Problems that invariants do not check: pods without a claim, or ended pods."""
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
    return [] if found == NODES * GPUS_PER_NODE else [f"{found} devices are published"]


def _behind(history: StackHistory, now: dict[Resource, Listed]) -> list[str]:
    return [
        f"the watch of {resource.plural}"
        for resource, there in now.items()
        if not history.matches(resource, there.objects)
    ]


async def _moment(fault: StackFault, began_s: float, history: StackHistory) -> None:
    if not fault.at_change:
        await sleep_until(began_s + fault.at_s)
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(began_s + fault.at_s - time.monotonic()):
            await history.wait_for_changes(fault.at_change, CLAIMS)


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
