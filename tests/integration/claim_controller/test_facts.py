"""What readers of the facts see: everything, in order, never backwards."""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from dray.bus.topology import FACTS_STREAM
from dray.domain.names import DEDICATED_TAINT, POOL_LABEL
from dray.domain.pods import Pool
from dray.kube.ports import NODES, PODS, POOLS, SLICES, TEMPLATES
from dray.messages.decisions import NodeLeft
from dray.messages.rpc import LOOKUP_SUBJECT, Lookup, LookupReply
from dray.runtime.clock import SystemClock
from dray_claim_controller.observe.keeper import PoolKeeper


async def newest(world: Any, kind: str, name: str = "") -> Any:
    """The last fact of a kind about the object of this name."""
    for fact in reversed((await world.facts()).get(kind, [])):
        values = [value for value in fact.values() if isinstance(value, dict)]
        if not name or any(value.get("name") == name for value in values):
            return fact
    return None


async def test_everything_is_published_before_synced(world: Any) -> None:
    await world.ready(await world.start())
    order = []
    async for delivered in world.bus.read(FACTS_STREAM):
        order.append(delivered.subject.split(".")[2])
        if not delivered.pending:
            break

    synced = order.index("synced")
    for kind in ("cluster", "deviceclass", "slice"):
        assert order.index(kind) < synced, kind
    assert order.index("domain") > synced


async def test_a_node_counts_the_requests_of_foreign_pods_until_they_end(world: Any) -> None:
    await world.ready(await world.start())
    foreign = {
        "metadata": {"name": "daemon", "namespace": "default"},
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "x", "resources": {"requests": {"cpu": "1500m"}}}],
        },
    }
    await world.kube.create(PODS, foreign, "default")

    async def used(milli: int) -> bool:
        fact = await newest(world, "node", "node-1")
        return bool(fact["node"].get("used_cpu_milli", 0) == milli)

    await world.until(lambda: used(1500), "the daemon is counted")
    status = {"status": {"phase": "Succeeded"}}
    await world.kube.patch(PODS, "daemon", status, "default", subresource="status")
    await world.until(lambda: used(0), "the ended pod is not")


async def test_what_vanished_while_nobody_led_gets_a_tombstone(world: Any) -> None:
    first = await world.ready(await world.start("first"))
    await world.node("node-2", "default-pool")
    await world.until(lambda: newest(world, "slice", "slice-node-2"), "the slice is known")
    await first.stop()
    await world.kube.delete(SLICES, "slice-node-2")
    await world.kube.delete(NODES, "node-2")
    await world.ready(await world.start("second"))

    slice_fact = await newest(world, "slice", "slice-node-2")
    node_fact = await newest(world, "node", "node-2")
    assert slice_fact["deleted"] is True
    assert node_fact["deleted"] is True


async def test_facts_are_published_after_the_bus_was_away(world: Any) -> None:
    running = await world.ready(await world.start())
    running.controller.bus.disconnect()
    await world.node("node-2", "default-pool")
    await world.until(
        lambda: "node-2" in running.controller.watching.picture.plain[NODES.plural],
        "the controller sees the node",
    )
    assert running.controller.bus_problem() is not None
    running.controller.bus.reconnect()

    await world.until(lambda: newest(world, "node", "node-2"), "the node is published")


async def test_watches_that_start_over_lose_and_double_nothing(world: Any) -> None:
    kube = world.kube.peer()
    running = await world.ready(await world.start(kube=kube))
    await world.node("node-2", "default-pool")
    await world.until(lambda: newest(world, "slice", "slice-node-2"), "node-2 is known")
    kube.hold_watches()
    kube.expire_watches()
    await world.kube.delete(SLICES, "slice-node-2")
    await world.kube.delete(NODES, "node-2")
    await world.node("node-3", "default-pool")
    kube.release_watches()

    async def as_is() -> bool:
        gone = await newest(world, "slice", "slice-node-2")
        return bool(gone.get("deleted") and await newest(world, "slice", "slice-node-3"))

    await world.until(as_is, "the facts follow")
    untouched = await newest(world, "slice", "slice-node-1")
    stored = await world.kube.get(SLICES, "slice-node-1")
    assert str(untouched["revision"]) == stored["metadata"]["resourceVersion"]
    assert set(running.controller.watching.picture.plain[NODES.plural]) == {"node-1", "node-3"}


async def test_a_node_moved_to_another_pool_enters_it_after_node_left(world: Any) -> None:
    running = await world.ready(await world.start())
    await world.pool("other")
    await world.ready(running)
    labels = {"metadata": {"labels": {POOL_LABEL: "other"}}}
    await world.kube.patch(NODES, "node-1", labels)

    async def leaving() -> Any:
        fact = await newest(world, "node", "node-1")
        return fact if fact["node"].get("leaving") == "default-pool" else None

    fact = await world.until(leaving, "the node leaves")
    assert fact["node"].get("pool", "") == ""
    # Nothing lets it in before the old pool's log says so, not even a change of the node.
    await world.kube.patch(NODES, "node-1", {"metadata": {"labels": {"zone": "a"}}})

    async def relabelled() -> bool:
        labels = (await newest(world, "node", "node-1"))["node"]["labels"]
        return bool(labels.get("zone") == "a")

    await world.until(relabelled, "the change is published")
    assert (await newest(world, "node", "node-1"))["node"].get("pool", "") == ""

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
        node = (await newest(world, "node", "node-1"))["node"]
        return bool(node.get("pool") == "other" and not node.get("leaving"))

    await world.until(entered, "the node is in the new pool")


async def test_a_node_in_two_pools_is_in_none_and_both_pools_say_so(world: Any) -> None:
    await world.ready(await world.start())
    await world.pool("greedy", nodeSelector={POOL_LABEL: "default-pool"})

    async def contested() -> bool:
        said = []
        for name in ("default-pool", "greedy"):
            pool = await world.kube.get(POOLS, name)
            conditions = (pool.get("status") or {}).get("conditions") or ()
            said += [
                entry
                for entry in conditions
                if entry["type"] == "NodeInTwoPools" and entry["status"] == "True"
            ]
        return len(said) == 2 and "node-1" in said[0]["message"]

    await world.until(contested, "both pools have the condition")
    assert (await newest(world, "node", "node-1"))["node"].get("pool", "") == ""


async def test_a_dedicated_pool_taints_its_nodes_and_an_undedicated_one_does_not(
    world: Any,
) -> None:
    await world.ready(await world.start())

    async def taints() -> list[str]:
        node = await world.kube.get(NODES, "node-1")
        return [entry["key"] for entry in node["spec"].get("taints") or ()]

    async def tainted() -> bool:
        fact = await newest(world, "node", "node-1")
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


async def test_the_webhooks_question_is_answered_from_the_api_server(world: Any) -> None:
    await world.start()

    async def ask(**question: Any) -> LookupReply:
        payload = msgspec.json.encode(Lookup(**question))
        answer = await world.bus.request(LOOKUP_SUBJECT, payload, timeout_s=1.0)
        return msgspec.json.decode(answer, type=LookupReply)

    async def pool() -> Any:
        with suppress(Exception):
            return (await ask(kind="pool", name="default-pool")).pool

    found = await world.until(pool, "an answer")
    template = {
        "metadata": {"name": "base", "namespace": "default", "labels": {"a": "b"}},
        "spec": {"spec": {"devices": {}}},
    }
    await world.kube.create(TEMPLATES, template, "default")
    base = await ask(kind="template", name="base", namespace="default")

    assert isinstance(found, Pool)
    assert found.dedicated is True
    assert base.template is not None
    assert base.template.labels == {"a": "b"}
    assert await ask(kind="policy", name="none") == LookupReply()


async def test_only_the_leader_publishes(world: Any) -> None:
    first = await world.ready(await world.start("first"))
    second = await world.start("second")
    await world.until(lambda: second.controller.watching.picture.synced, "the second sees all")
    assert not second.controller.election.leading

    await first.stop()
    await world.until(lambda: second.controller.term is not None, "the second takes over")
    await world.ready(second)
    await asyncio.sleep(0)
    assert [fact["instance"] for fact in (await world.facts())["synced"]] == ["second"]


async def test_a_new_leader_whose_watches_are_behind_buries_nobody(world: Any) -> None:
    """Its standby picture lacks what its predecessor has published already."""
    first = await world.ready(await world.start("first"))
    behind = world.kube.peer()
    second = await world.start("second", kube=behind)
    await world.until(lambda: second.controller.watching.picture.synced, "the second sees all")
    behind.hold_watches()
    await world.pod()
    await world.until(lambda: newest(world, "claim", "workload-tensor-fusion-gpu-claim"), "a fact")
    await first.stop()
    await world.ready(second)

    claim = await newest(world, "claim", "workload-tensor-fusion-gpu-claim")
    assert not claim.get("deleted")
    assert claim["claim"]["uid"] in second.controller.watching.picture.claims


async def test_a_decision_about_a_pod_not_seen_yet_is_carried_out(world: Any) -> None:
    """The watch of the executor is behind the facts that the decision was made from."""
    behind = world.kube.peer()
    await world.ready(await world.start(kube=behind))
    shape = world.shape()
    template = {
        "metadata": {"name": world.template_of(shape), "namespace": "default"},
        "spec": msgspec.json.decode(shape),
    }
    await world.kube.create(TEMPLATES, template, "default")
    behind.hold_watches()
    await world.pod()
    await world.decide(await world.decision())

    await world.until(
        lambda: world.kube.store.get(PODS, "workload", "default")["spec"].get("nodeName"),
        "the pod is bound",
    )


async def test_a_pool_that_goes_while_another_s_status_is_written_ends_nothing(
    world: Any,
) -> None:
    running = await world.ready(await world.start())
    for name in ("a-pool", "b-pool"):
        await world.kube.create(POOLS, {"metadata": {"name": name}, "spec": {}})
    pools = running.controller.watching.picture.plain[POOLS.plural]
    await world.until(lambda: {"a-pool", "b-pool"} <= set(pools))
    keeper = PoolKeeper(
        Forgetting(world.kube, pools, "b-pool"),  # type: ignore[arg-type]
        running.controller.watching,
        running.controller.term.publisher,
        SystemClock(),
        orders=dict,
        every_s=1.0,
    )
    for name in ("a-pool", "b-pool"):
        pools[name]["status"] = {}
    await keeper.keep()
    assert "b-pool" not in pools


class Forgetting:
    """Kubernetes in which a pool goes while a status is written."""

    def __init__(self, kube: Any, pools: dict[str, Any], pool: str) -> None:
        self._kube = kube
        self._pools = pools
        self._pool = pool

    async def patch(self, resource: Any, name: str, patch: Any, **more: Any) -> Any:
        self._pools.pop(self._pool, None)
        patch["metadata"].pop("resourceVersion", None)
        return await self._kube.patch(resource, name, patch, **more)
