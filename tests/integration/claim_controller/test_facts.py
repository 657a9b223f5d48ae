"""What readers of the facts see: everything, in order, never backwards."""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from dray.api.names import DEVICE_CLASS, DRIVER
from dray.api.pods import Pool
from dray.bus.topology import FACTS_STREAM
from dray.kube.ports import CLAIMS, NODES, POD_GROUPS, PODS, SLICES, TEMPLATES
from dray.messages.rpc import LOOKUP_SUBJECT, Lookup, LookupReply


async def test_everything_is_published_before_synced(world: Any) -> None:
    await world.ready(await world.start())
    execution = []
    async for delivered in world.bus.read(FACTS_STREAM):
        execution.append(delivered.subject.split(".")[2])
        if not delivered.pending:
            break

    synced = execution.index("synced")
    for kind in ("cluster", "deviceclass", "slice"):
        assert execution.index(kind) < synced, kind
    assert execution.index("domain") > synced


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
        fact = await world.newest("node", "node-1")
        return bool(fact["node"].get("used_cpu_milli", 0) == milli)

    await world.until(lambda: used(1500), "the daemon is counted")
    status = {"status": {"phase": "Succeeded"}}
    await world.kube.patch(PODS, "daemon", status, "default", subresource="status")
    await world.until(lambda: used(0), "the ended pod is not")


async def test_objects_deleted_without_a_leader_get_a_tombstone(world: Any) -> None:
    first = await world.ready(await world.start("first"))
    await world.node("node-2", "default-pool")
    await world.until(lambda: world.newest("slice", "slice-node-2"), "the slice is known")
    await first.stop()
    await world.kube.delete(SLICES, "slice-node-2")
    await world.kube.delete(NODES, "node-2")
    await world.ready(await world.start("second"))

    slice_fact = await world.newest("slice", "slice-node-2")
    node_fact = await world.newest("node", "node-2")
    assert slice_fact["deleted"] is True
    assert node_fact["deleted"] is True


async def test_facts_are_published_after_the_bus_was_away(world: Any) -> None:
    running = await world.ready(await world.start())
    running.controller.bus.disconnect()
    await world.node("node-2", "default-pool")
    await world.until(
        lambda: "node-2" in running.controller.informers.cache.plain[NODES.plural],
        "the controller sees the node",
    )
    assert running.controller.bus_problem() is not None
    running.controller.bus.reconnect()

    await world.until(lambda: world.newest("node", "node-2"), "the node is published")


async def test_watches_that_start_over_lose_and_double_nothing(world: Any) -> None:
    kube = world.kube.peer()
    running = await world.ready(await world.start(kube=kube))
    await world.node("node-2", "default-pool")
    await world.until(lambda: world.newest("slice", "slice-node-2"), "node-2 is known")
    kube.hold_watches()
    kube.expire_watches()
    await world.kube.delete(SLICES, "slice-node-2")
    await world.kube.delete(NODES, "node-2")
    await world.node("node-3", "default-pool")
    kube.release_watches()

    async def as_is() -> bool:
        gone = await world.newest("slice", "slice-node-2")
        return bool(gone.get("deleted") and await world.newest("slice", "slice-node-3"))

    await world.until(as_is, "the facts follow")
    untouched = await world.newest("slice", "slice-node-1")
    stored = await world.kube.get(SLICES, "slice-node-1")
    assert str(untouched["revision"]) == stored["metadata"]["resourceVersion"]
    assert set(running.controller.informers.cache.plain[NODES.plural]) == {"node-1", "node-3"}


async def test_the_webhooks_question_is_answered_from_the_api_server(world: Any) -> None:
    await world.start()

    async def ask(**question: Any) -> LookupReply:
        payload = msgspec.json.encode(Lookup(**question))
        answer = await world.bus.request(LOOKUP_SUBJECT, payload, timeout_s=10.0)
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
    group = {
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"minMember": 2, "minResources": {"cpu": "1", "nvidia.com/gpu": "2", "a/b": 0}},
    }
    await world.kube.create(POD_GROUPS, group, "default")
    asked = await ask(kind="group", name="train", namespace="default")

    assert isinstance(found, Pool)
    assert found.dedicated is True
    assert base.template is not None
    assert base.template.labels == {"a": "b"}
    assert asked.group_resources == ("cpu", "nvidia.com/gpu")
    assert await ask(kind="policy", name="none") == LookupReply()
    assert await ask(kind="group", name="none", namespace="default") == LookupReply()


async def test_only_the_leader_publishes(world: Any) -> None:
    first = await world.ready(await world.start("first"))
    second = await world.start("second")
    await world.until(lambda: second.controller.informers.cache.synced, "the second sees all")
    assert not second.controller.election.leading

    await first.stop()
    await world.until(lambda: second.controller.term is not None, "the second takes over")
    await world.ready(second)
    await asyncio.sleep(0)
    assert [fact["instance"] for fact in (await world.facts())["synced"]] == ["second"]


async def test_a_new_leader_whose_watches_are_behind_writes_no_tombstones(world: Any) -> None:
    """Its standby picture lacks what its predecessor has published already."""
    first = await world.ready(await world.start("first"))
    behind = world.kube.peer()
    second = await world.start("second", kube=behind)
    await world.until(lambda: second.controller.informers.cache.synced, "the second sees all")
    behind.hold_watches()
    await world.pod()
    await world.until(lambda: world.newest("claim", "workload-tensor-fusion-gpu-claim"), "a fact")
    await first.stop()
    await world.ready(second)

    claim = await world.newest("claim", "workload-tensor-fusion-gpu-claim")
    assert not claim.get("deleted")
    assert claim["claim"]["uid"] in second.controller.informers.cache.claims


async def test_a_new_leader_whose_watches_are_behind_restores_nothing(world: Any) -> None:
    """Its standby picture has what its predecessor has ended already."""
    first = await world.ready(await world.start("first"))
    behind = world.kube.peer()
    second = await world.start("second", kube=behind)
    name = "workload-tensor-fusion-gpu-claim"
    await world.pod()
    await world.until(lambda: world.newest("claim", name), "a fact")
    uid = (await world.newest("claim", name))["claim"]["uid"]
    await world.until(lambda: uid in second.controller.informers.cache.claims, "the second sees it")
    behind.hold_watches()
    await world.kube.delete(PODS, "workload", "default")
    await world.kube.delete(CLAIMS, name, "default")

    async def ended() -> bool:
        return bool((await world.newest("claim", name)).get("deleted"))

    await world.until(ended, "a tombstone")
    await first.stop()
    await world.ready(second)

    assert await ended()
    assert uid not in second.controller.informers.cache.claims


async def test_a_new_leader_whose_watches_are_behind_takes_no_devices_back(world: Any) -> None:
    """A device that its predecessor has published as gone is offered by nobody again."""
    first = await world.ready(await world.start("first"))
    behind = world.kube.peer()
    second = await world.start("second", kube=behind)
    await world.until(lambda: second.controller.informers.cache.synced, "the second sees all")
    behind.hold_watches()
    stored = await world.kube.get(SLICES, "slice-node-1")
    stored["spec"]["devices"] = stored["spec"]["devices"][:1]
    stored["spec"]["pool"]["generation"] += 1
    await world.kube.update(SLICES, stored)

    async def devices() -> int:
        return len((await world.newest("slice", "slice-node-1"))["slice"]["devices"])

    async def is_smaller() -> bool:
        return await devices() == 1

    await world.until(is_smaller, "a smaller slice")
    await first.stop()
    await world.ready(second)

    assert await devices() == 1


async def test_a_new_leader_knows_all_allocations_though_the_facts_are_lost(world: Any) -> None:
    """No fact says that the watch of its standby time is behind."""
    first = await world.ready(await world.start("first"))
    behind = world.kube.peer()
    second = await world.start("second", kube=behind)
    await world.until(lambda: second.controller.informers.cache.synced, "the second sees all")
    behind.hold_watches()
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": DEVICE_CLASS}}]}}
    made = {"metadata": {"name": "own"}, "spec": spec}
    stored = await world.kube.create(CLAIMS, made, "default")
    result = {"request": "r", "driver": DRIVER, "pool": "node-1", "device": "gpu-0"}
    allocation = {"devices": {"results": [result]}}
    status = {"status": {"allocation": allocation}}
    await world.kube.patch(CLAIMS, "own", status, "default", subresource="status")
    await first.stop()
    world.bus.server.lose_everything()
    await world.ready(second)

    assert stored["metadata"]["uid"] in second.controller.informers.cache.claims
    assert (await world.newest("claim", "own"))["claim"]["allocation"]


async def test_a_new_leader_whose_watches_are_not_behind_lists_nothing_again(world: Any) -> None:
    first = await world.ready(await world.start("first"))
    kube, lists = world.kube.peer(), []
    list_ = kube.list
    kube.list = lambda resource, *args, **kwargs: (
        lists.append(resource.plural) or list_(resource, *args, **kwargs)
    )
    second = await world.start("second", kube=kube)
    await world.pod()
    name = "workload-tensor-fusion-gpu-claim"
    await world.until(lambda: world.newest("claim", name), "a fact")
    known = second.controller.informers.cache
    await world.until(lambda: known.synced and known.claim_named("default", name), "it is seen")
    lists.clear()
    await first.stop()
    await world.ready(second)

    assert {CLAIMS.plural, PODS.plural} & set(lists) == set()


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

    await world.bound()


async def test_the_default_pool_is_looked_up_without_a_name(world: Any) -> None:
    await world.ready(await world.start())

    async def default() -> Any:
        payload = msgspec.json.encode(Lookup(kind="pool", name=""))
        answer = await world.bus.request(LOOKUP_SUBJECT, payload, timeout_s=10.0)
        found = msgspec.json.decode(answer, type=LookupReply).pool
        return None if found is None else found.name

    assert await default() is None
    await world.pool("one", default=True)
    assert await default() == "one"
    await world.pool("two", default=True)
    assert await default() is None
