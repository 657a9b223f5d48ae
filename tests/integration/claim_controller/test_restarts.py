"""Repetition, death and sleep: one allocation and one binding, never two."""

import asyncio
from typing import Any

import pytest

from dray.api.claims import first_attempt
from dray.api.names import DECISION, VOID
from dray.kube.convert import claim_from
from dray.kube.memory import MemoryKube
from dray.kube.ports import CLAIMS, LEASES, PODS, KubeUnavailableError, Resource
from dray.messages.base import encode
from dray.messages.commands import VoidClaim
from dray_claim_controller.settings import Lease


class Mortal(MemoryKube):
    """A client whose process dies right before or after its n-th write of pods or claims."""

    def __init__(self, living: MemoryKube, dies_at: int, *, after: bool) -> None:
        super().__init__(living.store)
        self.writes = 0
        self.dead = asyncio.Event()
        self._dies_at = dies_at
        self._after = after

    async def patch(self, resource: Resource, *args: Any, **kwargs: Any) -> Any:
        return await self._mortally(resource, super().patch(resource, *args, **kwargs))

    async def create(self, resource: Resource, *args: Any, **kwargs: Any) -> Any:
        # A dry run, as the probe makes, writes nothing.
        call = super().create(resource, *args, **kwargs)
        return await (call if kwargs.get("dry_run") else self._mortally(resource, call))

    async def bind(self, *args: Any, **kwargs: Any) -> None:
        await self._mortally(PODS, super().bind(*args, **kwargs))

    async def _mortally(self, resource: Resource, call: Any) -> Any:
        if resource not in (PODS, CLAIMS):
            return await call
        self.writes += 1
        dies = self.writes == self._dies_at
        if self.dead.is_set() or (dies and not self._after):
            call.close()
            await self._die()
        answer = await call
        if dies:
            await self._die()
        return answer

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.Event().wait()


def finished(world: Any, *, gated: bool) -> bool:
    pod = world.kube.store.get(PODS, "workload", "default")
    if gated:
        return not pod["spec"].get("schedulingGates")
    return bool(pod["spec"].get("nodeName"))


@pytest.mark.parametrize("gated", [False, True], ids=["dedicated", "shared"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dies_at", range(1, 6))
async def test_a_controller_killed_at_any_write_is_followed_by_one_that_finishes(
    bare_world: Any, dies_at: int, after: bool, gated: bool
) -> None:
    world = bare_world()
    await world.base(dedicated=not gated)
    world.make_claims()
    mortal = Mortal(world.kube, dies_at, after=after)
    first = await world.start("first", kube=mortal)
    await world.ready(first)
    await world.pod(gated=gated)
    try:
        # Its deaths before the claim exists are part of the range: then the decision waits.
        await world.until(lambda: mortal.dead.is_set() or world.names(CLAIMS), "a claim or a death")
        second = None
        if mortal.dead.is_set():
            second = await take_over(world, first)
        await world.decide(await world.decision())
        await world.until(
            lambda: mortal.dead.is_set() or (finished(world, gated=gated) and mortal.writes >= 4),
            "an end or a death",
        )
        if mortal.dead.is_set() and second is None:
            await take_over(world, first)
        await world.until(lambda: finished(world, gated=gated), "the pod goes on")

        assert len(world.allocations()) == 1
        assert len(world.bindings()) == (0 if gated else 1)
        claim = claim_from(await world.claim())
        assert claim.decision == 1_000_001
        assert claim.void == 0
    finally:
        await world.close()


async def take_over(world: Any, dead: Any) -> Any:
    """A second controller leads, once the dead one's Lease is out of the way."""
    for task in dead.tasks:
        task.cancel()
    await asyncio.gather(*dead.tasks, return_exceptions=True)
    await world.kube.delete(LEASES, "dray-claim-controller", "dray-system")
    return await world.ready(await world.start("second"))


async def test_a_record_delivered_twice_changes_nothing(world: Any) -> None:
    running = await world.ready(await world.start())
    await world.pod()
    decision = await world.decision()
    await world.decide(decision)
    await world.decide(decision)
    await world.until(lambda: finished(world, gated=False), "the pod is bound")
    await running.controller.term.executor.idle()
    before = await world.claim()
    await world.decide(decision)
    term = running.controller.term
    await world.until(
        lambda: term.followers.executions["default-pool"].sequence == 4 and not term.executor.busy,
        "the third record is handled",
    )

    assert len(world.allocations()) == 1
    assert len(world.bindings()) == 1
    after = await world.claim()
    assert after["status"] == before["status"]


async def void(world: Any, decision: Any, attempt: int) -> None:
    claim = decision.claims[0]
    command = VoidClaim(
        domain="default-pool",
        claim_uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        attempt=attempt,
        reason="test",
    )
    await world.bus.publish(encode(command, source="/allocator/test"))


async def test_a_claim_that_is_deleted_while_it_is_voided_ends_no_term(world: Any) -> None:
    own = world.kube.peer()
    running = await world.ready(await world.start(kube=own))
    term = running.controller.term
    await world.pod("leaves")
    decision = await world.decision("leaves")
    claim = decision.claims[0]
    met = asyncio.Event()

    async def deleted_first(resource: Any, name: str) -> None:
        if (resource, name) == (CLAIMS, claim.name):
            await world.kube.delete(CLAIMS, claim.name, claim.namespace)
            met.set()

    await world.until(lambda: claim.uid in running.controller.informers.cache.claims)
    own.before["patch"] = deleted_first
    await void(world, decision, claim.attempt)
    await world.until(met.is_set, "the command reached its claim")

    await world.pod("stays")
    await world.decide(await world.decision("stays"))
    await world.until(world.bindings, "the other pod is bound")
    assert running.controller.term is term


@pytest.mark.parametrize("step", ["mark", "commit"])
async def test_an_executor_asleep_while_its_decision_is_voided_does_not_commit(
    world: Any, step: str
) -> None:
    """Two controllers: the first sleeps right before a write, and leads no more when it wakes."""
    held, wake = asyncio.Event(), asyncio.Event()

    async def hook(name: str, _: Any) -> None:
        if name == step and not wake.is_set():
            held.set()
            await wake.wait()

    # Its watches stand still too, as those of a paused process do.
    stale = world.kube.peer()
    sleeper = await world.ready(await world.start("sleeper", kube=stale, hook=hook, lease=Lease()))
    executor = sleeper.controller.term.executor
    await world.pod()
    decision = await world.decision()
    await world.decide(decision)
    await world.until(held.is_set, "the first executor sleeps")
    stale.hold_watches()

    await world.kube.delete(LEASES, "dray-claim-controller", "dray-system")
    # The paused process neither renews nor steps back: only its successor acts.
    other = world.kube.peer()
    second = await world.start("second", kube=other, hook=_hold_for_ever)
    await world.until(lambda: second.controller.term is not None, "the second leads")
    await void(world, decision, decision.claims[0].attempt)

    async def is_void() -> bool:
        return claim_from(await world.claim()).void >= decision.claims[0].attempt

    await world.until(is_void, "the decision is void")
    wake.set()
    stale.release_watches()
    await executor.idle()

    claim = claim_from(await world.claim())
    assert claim.allocation is None
    assert not world.allocations()


async def _hold_for_ever(_: str, __: Any) -> None:
    await asyncio.Event().wait()


async def test_a_newer_decision_replaces_a_void_one(world: Any) -> None:
    await world.ready(await world.start())
    await world.pod()
    first = await world.decision()
    await void(world, first, first.claims[0].attempt)

    async def is_void() -> bool:
        return claim_from(await world.claim()).void == first.claims[0].attempt

    await world.until(is_void, "the claim is void")
    await world.decide(first)
    await world.decide(await world.decision(device="gpu-1", attempt=first.claims[0].attempt + 1))
    await world.until(lambda: finished(world, gated=False), "the pod is bound")

    claim = await world.claim()
    assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-1"
    assert claim["metadata"]["annotations"][DECISION] == "1000002"
    assert claim["metadata"]["annotations"][VOID] == "1000001"


async def test_a_committed_claim_is_not_voided(world: Any) -> None:
    running = await world.ready(await world.start())
    await world.pod()
    decision = await world.decision()
    await world.decide(decision)
    await world.until(lambda: finished(world, gated=False), "the pod is bound")
    await void(world, decision, decision.claims[0].attempt)
    store = world.bus.server.streams["DRAY_COMMANDS"]
    await world.until(lambda: store.state.last_sequence == 1, "the command is stored")
    await running.controller.term.executor.idle()

    claim = claim_from(await world.claim())
    assert claim.allocation is not None
    assert claim.void == 0


async def test_a_device_allocated_twice_by_a_wrong_log_is_allocated_once(world: Any) -> None:
    running = await world.ready(await world.start())
    await world.pod("first")
    await world.pod("second")
    await world.decide(await world.decision("first", tflops="200", vram="16Gi"))
    await world.decide(await world.decision("second", tflops="200", vram="16Gi"))

    async def settled() -> bool:
        claims = [claim_from(await world.claim(name)) for name in ("first", "second")]
        return all(claim.allocation is not None or claim.void for claim in claims)

    await world.until(settled, "one is allocated, the other void")

    claims = [claim_from(await world.claim(name)) for name in ("first", "second")]
    assert sorted(claim.allocation is None for claim in claims) == [False, True]
    assert running.controller.term.executor.double_allocations_prevented == 1


@pytest.mark.parametrize("after", [False, True], ids=["lost", "unknown"])
async def test_an_api_server_that_fails_is_asked_again(world: Any, after: bool) -> None:
    kube = world.kube.peer()
    await world.ready(await world.start(kube=kube))
    await world.pod()
    decision = await world.decision()
    kube.fail_next("patch", KubeUnavailableError("away"), after=after)
    kube.fail_next("patch", KubeUnavailableError("away"), after=after)
    kube.fail_next("bind", KubeUnavailableError("away"), after=after)
    await world.decide(decision)
    await world.until(lambda: finished(world, gated=False), "the pod is bound")

    assert len(world.allocations()) == 1
    assert len(world.bindings()) == 1


async def test_a_card_removed_after_the_decision_is_rolled_back_without_an_alarm(
    world: Any,
) -> None:
    running = await world.ready(await world.start())
    await world.pod()
    await world.decide(await world.decision(device="went"))

    async def rolled_back() -> bool:
        return bool(claim_from(await world.claim()).void >= first_attempt(1))

    await world.until(rolled_back, "the decision is void")
    assert not world.allocations()
    assert running.controller.term.executor.double_allocations_prevented == 0
