"""The path of a claim's fact through the allocator: from the bus to the appended record.

Counts the modules that are entered, and how many times each is entered from another module. The pod
requests a fraction of a GPU of a pool with one node, on the in-memory bus. A similar pod was
decided before, so that caches are filled. The scores that a replica keeps for people, of some
decisions per tick, are left out: they enter four more modules. Speed is not measured.

    python -m benchmarks.fact_path
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from unittest.mock import patch

from benchmarks.decision import OPENED, POOL, fleet_facts, pod_facts, pool_facts
from dray.bus.memory import MemoryBus
from dray.bus.topology import STREAMS, log_spec
from dray.messages.base import Message, encode
from dray.messages.decisions import AnyRecord, log_subject
from dray_allocator.service.replica import Replica
from dray_allocator.service.telemetry import AllocatorMetrics
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.options import AllocatorOptions

_BOUND_S = 30.0
_PODS = 3
"""The path of the pod that entered the fewest modules counts: leases may be renewed meanwhile."""


@contextmanager
def entered(prefix: str) -> Iterator[Counter[str]]:
    """Count the calls into each module of a package that come from another of its modules.

    Generators and coroutines count once, when they are called, and not when they continue.
    """
    counts: Counter[str] = Counter()
    seen: set[int] = set()

    def is_resumed(frame: FrameType) -> bool:
        return frame.f_lasti > 10 and id(frame) in seen  # ids are used again

    def observe(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(prefix) or is_resumed(frame):
            return
        seen.add(id(frame))
        caller = frame.f_back
        while caller is not None and not caller.f_globals.get("__name__", "").startswith(prefix):
            caller = caller.f_back
        if caller is None or caller.f_globals["__name__"] != module:
            counts[module] += 1

    sys.setprofile(observe)
    try:
        yield counts
    finally:
        sys.setprofile(None)


async def path() -> Counter[str]:
    """Modules of the allocator, and how many times each was entered from another one."""
    bus = MemoryBus()
    for spec in (*STREAMS, log_spec(POOL, 1)):
        await bus.ensure(spec)
    opened = encode(OPENED, source="/c").to(log_subject(POOL, 1))
    await bus.append(opened, expected_last=0)
    state = AllocatorState(AllocatorOptions(writer="a"))
    replica = Replica(bus.peer(), state, AllocatorMetrics(state))
    await _publish(bus, *pool_facts(), *fleet_facts(1))
    running = asyncio.create_task(replica.run())
    try:
        await _until(lambda: POOL in state.domains and state.ready(state.domains[POOL]))
        found = [await _decide(bus, state, f"pod-{number}") for number in range(1 + _PODS)][1:]
    finally:
        running.cancel()
        await asyncio.wait([running])
    return min(found, key=len)


async def _decide(bus: MemoryBus, state: AllocatorState, uid: str) -> Counter[str]:
    """The modules entered from the claim's fact until its decision is in the log; its pod is
    known."""
    claim, pod = pod_facts(uid)
    await _publish(bus, pod)
    await _until(lambda: uid in state.facts.pods)
    no_scores = patch("dray_allocator.cycle.step.keep_scores")
    with no_scores, entered("dray_allocator.") as counts, _until_appended() as is_appended:
        await _publish(bus, claim)
        async with asyncio.timeout(_BOUND_S):
            await is_appended.wait()
    return counts


@contextmanager
def _until_appended() -> Iterator[asyncio.Event]:
    """Set once the metrics count the record, before it is read back."""
    is_appended, appended = asyncio.Event(), AllocatorMetrics.appended

    def stop(metrics: AllocatorMetrics, record: AnyRecord) -> None:
        appended(metrics, record)
        sys.setprofile(None)
        is_appended.set()

    with patch.object(AllocatorMetrics, "appended", stop):
        yield is_appended


async def _publish(bus: MemoryBus, *facts: Message) -> None:
    for fact in facts:
        await bus.publish(encode(fact, source="/c"))


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_BOUND_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def main() -> None:
    """Print the modules."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--output", choices=("text", "json"), default="text")
    output = parser.parse_args().output
    counts = asyncio.run(path())
    if output == "json":
        print(json.dumps({"modules": len(counts), "entries": dict(counts.most_common())}))
        return
    print(f"{len(counts)} modules; entries from another module:")
    for module, entries in counts.most_common():
        print(f"{entries:4}  {module}")


if __name__ == "__main__":
    main()
