"""The pods of a group's decision are bound together or not at all."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from dray.api.groups import VOLCANO
from dray.api.pods import GroupKey
from dray.kube.convert import claim_from
from dray.kube.ports import CLAIMS, PODS, Object, RefusedError
from dray.messages.decisions import DecidedGroup, GroupDecision, PodDecision

POOL = "default-pool"
KEY = GroupKey(VOLCANO, "default", "train")
NAMES = ("a", "b", "c")


async def joint(world: Any, *names: str, timeout_s: float = 60.0) -> tuple[PodDecision, ...]:
    """One decision on pods with a device each, as an allocator would make it."""
    made = [
        await world.decision(name, device=f"gpu-{at % 2}", node=f"node-{at // 2 + 1}")
        for at, name in enumerate(names)
    ]
    first = made[0].claims[0]
    group = GroupDecision(
        id=f"{first.uid}.{first.attempt}",
        group=KEY,
        uid="g",
        size=len(made),
        timeout_s=timeout_s,
    )
    return tuple(replace(one, group=group) for one in made)


async def decide(world: Any, *parts: tuple[PodDecision, ...]) -> None:
    (tick,) = (await world.facts())["tick"]
    for number, pods in enumerate(parts, start=1):
        await world.append(
            DecidedGroup(
                domain=world.pool_name,
                epoch=1,
                writer="test",
                facts_sequence=1,
                now_unix_s=tick["now_unix_s"],
                policy_version=2,
                pods=pods,
                part=number,
                parts=len(parts),
            )
        )


async def nobody_is_bound(world: Any) -> bool:
    return world.bindings() == []


async def rolled_back(world: Any, *names: str) -> None:
    async def all_void() -> bool:
        claims = [claim_from(await world.claim(name)) for name in names]
        return all(one.allocation is None and one.void >= 1_000_001 for one in claims)

    await world.until(all_void, "all claims are void and cleared")


@pytest.fixture
async def three(world: Any) -> Any:
    """Three pods with claims, and nodes for them."""
    world.pool_name = POOL
    await world.node("node-2", POOL)
    return world


async def test_no_pod_is_bound_before_all_have_their_devices(three: Any) -> None:
    held: asyncio.Event = asyncio.Event()

    async def hook(step: str, decision: PodDecision) -> None:
        if step == "commit" and decision.name == "c":
            await held.wait()

    running = await three.ready(await three.start(hook=hook))
    for name in NAMES:
        await three.pod(name)
    decisions = await joint(three, *NAMES)
    await decide(three, decisions)
    await three.until(lambda: len(three.allocations()) == 2, "two are committed")
    executor = running.controller.term.executor
    await three.until(lambda: executor.resting == 2, "two wait for the third")
    assert three.bindings() == []
    held.set()
    for name in NAMES:
        await three.bound(name)
    await executor.idle()
    assert len(three.bindings()) == 3


async def test_a_decision_in_parts_is_executed_as_a_whole(three: Any) -> None:
    await three.ready(await three.start())
    for name in NAMES:
        await three.pod(name)
    first, second, third = await joint(three, *NAMES)
    await decide(three, (first, second), (third,))
    for name in NAMES:
        await three.bound(name)


async def test_a_first_part_alone_is_not_executed(three: Any) -> None:
    running = await three.ready(await three.start())
    for name in NAMES:
        await three.pod(name)
    first, second, _ = await joint(three, *NAMES)
    (tick,) = (await three.facts())["tick"]
    await three.append(
        DecidedGroup(
            domain=three.pool_name,
            epoch=1,
            writer="test",
            facts_sequence=1,
            now_unix_s=tick["now_unix_s"],
            policy_version=2,
            pods=(first, second),
            part=1,
            parts=2,
        )
    )
    alone = await three.decision("c", device="gpu-1")
    await three.decide(alone)
    await three.bound("c")
    await running.controller.term.executor.idle()
    assert len(three.bindings()) == 1


async def test_a_pod_that_is_deleted_while_it_is_committed_takes_all_back(three: Any) -> None:
    held: asyncio.Event = asyncio.Event()

    async def hook(step: str, decision: PodDecision) -> None:
        if step == "commit" and decision.name == "c":
            await three.kube.delete(PODS, "c", "default", grace_period_s=0)
            held.set()

    running = await three.ready(await three.start(hook=hook))
    for name in NAMES:
        await three.pod(name)
    await decide(three, await joint(three, *NAMES))
    await three.until(held.is_set, "the third is about to be committed")
    await rolled_back(three, "a", "b")
    await running.controller.term.executor.idle()
    assert three.bindings() == []


async def test_a_void_claim_takes_all_back(three: Any) -> None:
    running = await three.ready(await three.start())
    for name in NAMES:
        await three.pod(name)
    decisions = await joint(three, *NAMES)
    last = decisions[2].claims[0]
    patch = {"metadata": {"annotations": {"tensor-fusion.ai/void": str(last.attempt)}}}
    await three.kube.patch(CLAIMS, last.name, patch, "default")
    await decide(three, decisions)
    await rolled_back(three, "a", "b")
    await running.controller.term.executor.idle()
    assert three.bindings() == []


async def test_the_next_leader_takes_back_what_lacks_a_pod(three: Any) -> None:
    first = await three.ready(await three.start("one", hook=_stop_before_bind))
    for name in NAMES:
        await three.pod(name)
    decisions = await joint(three, *NAMES)
    await decide(three, decisions)
    await three.until(lambda: len(three.allocations()) == 3, "all are committed")
    await first.stop()
    await three.kube.delete(PODS, "c", "default", grace_period_s=0)
    second = await three.ready(await three.start("two"))
    await rolled_back(three, "a", "b")
    await second.controller.term.executor.idle()
    assert three.bindings() == []


async def test_the_next_leader_binds_the_others_once_one_is_bound(three: Any) -> None:
    bound = asyncio.Event()

    async def hook(step: str, decision: PodDecision) -> None:
        if step == "bind" and decision.name != "a":
            bound.set()
            await asyncio.Event().wait()

    first = await three.ready(await three.start("one", hook=hook))
    for name in NAMES:
        await three.pod(name)
    await decide(three, await joint(three, *NAMES))
    await three.bound("a")
    await first.stop()
    await three.ready(await three.start("two"))
    for name in NAMES:
        await three.bound(name)


async def test_a_pod_that_is_refused_takes_all_back(three: Any, monkeypatch: Any) -> None:
    kube = three.kube.peer()
    patch = kube.patch

    async def refuse(resource: Any, name: str, *args: Any, **more: Any) -> Object:
        if name.startswith("c-") and more.get("subresource") == "status":
            status = args[0].get("status") or {}
            if status.get("allocation"):
                raise RefusedError("no", 422)
        answer: Object = await patch(resource, name, *args, **more)
        return answer

    monkeypatch.setattr(kube, "patch", refuse)
    await three.ready(await three.start(kube=kube))
    for name in NAMES:
        await three.pod(name)
    await decide(three, await joint(three, *NAMES))
    await rolled_back(three, "a", "b")
    assert three.bindings() == []


async def _stop_before_bind(step: str, decision: PodDecision) -> None:
    if step == "bind":
        await asyncio.Event().wait()
