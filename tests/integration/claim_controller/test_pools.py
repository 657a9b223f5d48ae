"""Pools and their nodes: membership, taints, and what the status says."""

import asyncio
from typing import Any

import msgspec
import pytest

from dray.api.names import (
    DEDICATED_TAINT,
    DRIVER,
    OWNER_DRAY,
    OWNER_KUBE_SCHEDULER,
    POOL_LABEL,
)
from dray.kube.ports import EVENTS, NODES, POOLS, NotFoundError
from dray.messages.decisions import NodeLeft, domain_lease
from dray.messages.rpc import (
    INVENTORY_SUBJECT,
    LOOKUP_SUBJECT,
    Inventory,
    Lookup,
    LookupReply,
    Overlap,
)
from dray.runtime.clock import ManualClock, SystemClock
from dray_claim_controller.cache.object_texts import ObjectTexts
from dray_claim_controller.pools.decisions.rules import PoolStatus
from dray_claim_controller.pools.reconciler import PoolReconciler
from dray_claim_controller.publication.publisher import Publisher


async def test_a_node_moved_to_another_pool_enters_it_after_node_left(world: Any) -> None:
    running = await world.ready(await world.start())
    await world.pool("other")
    await world.ready(running)
    labels = {"metadata": {"labels": {POOL_LABEL: "other"}}}
    await world.kube.patch(NODES, "node-1", labels)

    async def leaving() -> Any:
        fact = await world.newest("node", "node-1")
        return fact if fact["node"].get("leaving") == "default-pool" else None

    fact = await world.until(leaving, "the node leaves")
    assert fact["node"].get("pool", "") == ""
    # Nothing lets it in before the old pool's log says so, not even a change of the node.
    await world.kube.patch(NODES, "node-1", {"metadata": {"labels": {"zone": "a"}}})

    async def relabelled() -> bool:
        labels = (await world.newest("node", "node-1"))["node"]["labels"]
        return bool(labels.get("zone") == "a")

    await world.until(relabelled, "the change is published")
    assert (await world.newest("node", "node-1"))["node"].get("pool", "") == ""

    await world.append(
        NodeLeft(
            domain="default-pool",
            epoch=1,
            writer="test",
            facts_sequence=1,
            now_unix_s=0.0,
            node="node-1",
            node_revision=fact["revision"],
        )
    )

    async def entered() -> bool:
        node = (await world.newest("node", "node-1"))["node"]
        return bool(node.get("pool") == "other" and not node.get("leaving"))

    await world.until(entered, "the node is in the new pool")


async def test_a_pool_takes_no_node_from_another_and_both_report_it(world: Any) -> None:
    await world.ready(await world.start())
    before = await world.newest("node", "node-1")
    await world.pool("greedy", nodeSelector={POOL_LABEL: "default-pool"})

    async def conditions(pool: str) -> dict[str, tuple[str, str, str]]:
        status = (await world.kube.get(POOLS, pool)).get("status") or {}
        return {
            entry["type"]: (entry["status"], entry["reason"], entry["message"])
            for entry in status.get("conditions") or ()
        }

    async def reported() -> bool:
        lost, kept = await conditions("greedy"), await conditions("default-pool")
        return "NodesInOtherPools" in str(lost) and "node-1 (greedy)" in str(kept)

    await world.until(reported, "both pools say so")
    lost, kept = await conditions("greedy"), await conditions("default-pool")
    assert lost["Ready"][:2] == ("False", "NodesInOtherPools")
    assert "it selects nodes that other pools have: node-1 (default-pool)" in lost["Ready"][2]
    assert kept["Ready"][:2] == ("True", "Ready")

    async def published() -> bool:
        fact = await world.newest("node", "node-1")
        assert fact["node"]["pool"] == before["node"]["pool"] == "default-pool"
        return fact.get("also_selected_by") == ["greedy"]

    await world.until(published, "the node's fact names the other pool")

    async def event() -> Any:
        return [
            one["message"]
            for one in (await world.kube.list(EVENTS, "default")).objects
            if one["involvedObject"]["kind"] == "GPUPool"
        ]

    (message,) = await world.until(event, "an event about the pool")
    assert message == lost["NodeInTwoPools"][2]


async def test_a_lookup_names_the_nodes_that_a_pool_would_not_get(world: Any) -> None:
    await world.ready(await world.start())

    async def asked(**selector: str) -> LookupReply:
        pairs = tuple(selector.items())
        question = msgspec.json.encode(Lookup(kind="overlap", name="greedy", selector=pairs))
        answer = await world.bus.request(LOOKUP_SUBJECT, question, timeout_s=5.0)
        return msgspec.json.decode(answer, type=LookupReply)

    assert (await asked()).overlap == Overlap(count=1, nodes=(("node-1", "default-pool"),))
    assert (await asked(zone="z")).overlap == Overlap(count=0)


async def test_a_dedicated_pool_taints_its_nodes_and_an_undedicated_one_does_not(
    world: Any,
) -> None:
    await world.ready(await world.start())

    async def taints() -> list[str]:
        node = await world.kube.get(NODES, "node-1")
        return [entry["key"] for entry in node["spec"].get("taints") or ()]

    async def tainted() -> bool:
        fact = await world.newest("node", "node-1")
        return DEDICATED_TAINT in await taints() and bool(fact["node"].get("dedicated"))

    await world.until(tainted, "the node is tainted, then called dedicated")
    await world.kube.patch(POOLS, "default-pool", {"spec": {"dedicated": False}})

    async def untainted() -> bool:
        return not await taints()

    await world.until(untainted, "the taint is removed")


async def test_a_pool_says_what_it_has_and_what_it_lacks(world: Any) -> None:
    await world.ready(await world.start())
    patch = {"spec": {"schedulingConfigTemplate": "nowhere"}}
    await world.kube.patch(POOLS, "default-pool", patch)
    await world.pod()
    await world.decide(await world.decision())

    async def counted() -> Any:
        status = (await world.kube.get(POOLS, "default-pool")).get("status") or {}
        missing = [
            entry["status"]
            for entry in status.get("conditions") or ()
            if entry["type"] == "TemplateMissing"
        ]
        return status if missing == ["True"] and status["tflops"]["free"] == "524" else None

    status = await world.until(counted, "the status counts the claim")
    assert status["nodes"] == 1
    assert status["gpus"] == 2
    assert status["tflops"] == {"total": "624", "virtual": "624", "free": "524"}
    assert status["vram"] == {"total": "80Gi", "virtual": "80Gi", "free": "64Gi"}
    assert status["decisionLog"]["epoch"] == 1


async def test_the_status_keeps_the_former_owner_while_facts_of_nodes_can_not_be_published(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be lost with the bus, and then it is all that tells who had the devices."""
    await world.node("node-theirs", "theirs")
    await world.ready(await world.start())
    await world.pool("theirs", owner=OWNER_KUBE_SCHEDULER)

    async def status() -> dict[str, Any]:
        found: dict[str, Any] = (await world.kube.get(POOLS, "theirs")).get("status") or {}
        return found

    async def is_theirs() -> bool:
        found = await status()
        return found.get("nodes") == 1 and found.get("owner") == OWNER_KUBE_SCHEDULER

    await world.until(is_theirs, "kube-scheduler has the node")

    async def wait_for_the_bus(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Publisher, "flush", wait_for_the_bus)
    await world.kube.patch(POOLS, "theirs", {"spec": {"owner": OWNER_DRAY}})

    async def is_observed() -> bool:
        return (await status()).get("observedGeneration") == 2

    await world.until(is_observed, "the status is written")
    assert (await status())["owner"] == OWNER_KUBE_SCHEDULER


class Forgetting:
    """Kubernetes in which a pool goes while a status is written."""

    def __init__(self, kube: Any, pools: ObjectTexts, pool: str) -> None:
        self._kube = kube
        self._pools = pools
        self._pool = pool
        self.written: list[str] = []

    async def patch(self, resource: Any, name: str, patch: Any, **more: Any) -> Any:
        self.written.append(name)
        if self._pool in self._pools:
            self._pools.drop(self._pool)
        if name == self._pool:
            raise NotFoundError(f"gpupools {name!r} not found")
        patch["metadata"].pop("resourceVersion", None)
        return await self._kube.patch(resource, name, patch, **more)


async def test_a_pool_that_goes_while_another_s_status_is_written_ends_nothing(
    world: Any,
) -> None:
    running = await world.ready(await world.start())
    for name in ("a-pool", "b-pool"):
        await world.kube.create(POOLS, {"metadata": {"name": name}, "spec": {}})
    pools = running.controller.informers.cache.plain[POOLS.plural]
    for name in ("a-pool", "b-pool"):
        await world.until(lambda name=name: name in pools and pools[name].get("status"))
        pools.put_object(name, {**pools[name], "status": {}})
    kube = Forgetting(world.kube, pools, "b-pool")
    pool_reconciler = PoolReconciler(
        kube,  # type: ignore[arg-type]
        running.controller.informers,
        running.controller.term.publisher,
        SystemClock(),
        executions=dict,
        warn=lambda pool, reason, message: None,
        every_s=1.0,
    )
    running_reconciler = asyncio.create_task(pool_reconciler.run())
    await world.until(lambda: "a-pool" in kube.written, "the other's status is written")
    await world.until(lambda: not pool_reconciler.backlog, "all are looked at")
    assert not running_reconciler.done()
    running_reconciler.cancel()
    await asyncio.wait([running_reconciler])


async def test_only_pools_of_which_something_changed_are_looked_at(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    answer = PoolStatus.answer

    def noting(self: PoolStatus, cache: Any) -> Any:
        asked.append(self.pool)
        return answer(self, cache)

    monkeypatch.setattr(PoolStatus, "answer", noting)
    running = await world.ready(await world.start())
    for name in ("a-pool", "b-pool"):
        await world.pool(name)
    await world.ready(running)
    reconciler = running.controller.term.pools

    async def are_settled() -> bool:
        before = len(asked)
        await asyncio.sleep(0.3)
        return before == len(asked) and not reconciler.backlog

    await world.until(are_settled, "nothing is left to be written")
    asked.clear()
    labels = {"metadata": {"labels": {"zone": "a"}}}
    await world.kube.patch(POOLS, "a-pool", labels)
    await world.until(lambda: asked, "the changed pool is looked at")
    await world.until(are_settled, "nothing is left to be written")
    assert set(asked) == {"a-pool"}


async def pool_status(world: Any, clock: ManualClock) -> Any:
    """After some time."""
    await clock.advance(1.0)
    return (await world.kube.get(POOLS, "default-pool")).get("status") or {}


def condition(status: Any, kind: str) -> Any:
    return next((one for one in status.get("conditions") or () if one["type"] == kind), None)


async def test_a_pool_names_its_replica_and_since_when_it_has_none(bare_world: Any) -> None:
    world = bare_world()
    await world.base()
    clock = ManualClock()
    try:
        await world.start(clock=clock)

        async def served(by: str | None) -> Any:
            status = await pool_status(world, clock)
            found = condition(status, "Served")
            return status if found and status.get("servedBy") == by else None

        nobody = await world.until(lambda: served(None), "nobody serves it")
        assert condition(nobody, "Served")["status"] == "False"
        ready = condition(nobody, "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "NotServed")

        assert await world.bus.acquire(domain_lease("default-pool"), "a-1", ttl_s=1e9)
        first = await world.until(lambda: served("a-1"), "one serves it")
        assert condition(first, "Ready")["status"] == "True"

        await world.bus.release(domain_lease("default-pool"), "a-1")
        assert await world.bus.acquire(domain_lease("default-pool"), "a-2", ttl_s=1e9)
        await world.until(lambda: served("a-2"), "another serves it")

        await world.bus.release(domain_lease("default-pool"), "a-2")
        last = await world.until(lambda: served(None), "nobody serves it again")
        assert condition(last, "Ready")["reason"] == "NotServed"
    finally:
        await world.close()


async def test_nodes_whose_agents_are_silent_are_named_until_they_report(bare_world: Any) -> None:
    world = bare_world()
    await world.base()
    clock = ManualClock()
    try:
        await world.start(clock=clock)

        async def silent(status: str) -> Any:
            found = condition(await pool_status(world, clock), "NodeAgentsSilent")
            return found if found and found["status"] == status else None

        assert await world.until(lambda: silent("False"), "nothing is known yet")
        named = await world.until(lambda: silent("True"), "the agent is silent")
        assert "node-1" in named["message"]

        report = Inventory(node="node-1", driver=DRIVER, generation=1)
        subject = f"{INVENTORY_SUBJECT}.node-1"
        peer = world.bus.peer(user="node-1")
        await peer.request(subject, msgspec.json.encode(report), timeout_s=5.0)
        await world.until(lambda: silent("False"), "it reports again")
    finally:
        await world.close()
