"""A GPUPool that is deleted stays until nothing uses it; so does its policy."""

from typing import Any

import msgspec
import pytest
from tests.integration.claim_controller.world import hold_before_writing

from dray.api.names import POOL_FINALIZER
from dray.kube.ports import CLAIMS, PODS, POLICIES, POOLS, NotFoundError
from dray.messages.rpc import LOOKUP_SUBJECT, Lookup, LookupReply
from dray_claim_controller.pools.decisions.usage import HELD_FOR_S, PoolRelease, reserved_claims

POOL = "default-pool"


async def found(world: Any, resource: Any, name: str) -> Any:
    """The object, or None."""
    try:
        return await world.kube.get(resource, name)
    except NotFoundError:
        return None


async def gone(world: Any, resource: Any, name: str) -> bool:
    return await found(world, resource, name) is None


async def ready_reason(world: Any) -> str:
    pool = await world.kube.get(POOLS, POOL)
    conditions = (pool.get("status") or {}).get("conditions") or ()
    return next((one["reason"] for one in conditions if one["type"] == "Ready"), "")


async def test_a_pool_has_its_finalizer_before_its_log_is_opened(world: Any) -> None:
    await world.ready(await world.start())

    versions = [event.after for event in world.kube.store.events if event.resource == POOLS]

    opened = [one for one in versions if ((one.get("status") or {}).get("decisionLog"))]
    assert opened
    assert all(POOL_FINALIZER in one["metadata"]["finalizers"] for one in opened)


async def test_an_unused_pool_is_deleted_at_once(world: Any) -> None:
    await world.ready(await world.start())
    await world.pod()
    await world.until(lambda: world.names(CLAIMS), "a pod waits")

    await world.kube.delete(POOLS, POOL)

    await world.until(lambda: gone(world, POOLS, POOL), "the pool is gone")


async def test_a_pool_stays_until_the_last_pod_has_given_its_devices_back(world: Any) -> None:
    await world.ready(await world.start())
    await world.pod()
    await world.decide(await world.decision())
    await world.until(world.bindings, "the pod is bound")

    async def used_by() -> int:
        payload = msgspec.json.encode(Lookup(kind="use", name=POOL))
        answer = await world.bus.request(LOOKUP_SUBJECT, payload, timeout_s=5.0)
        return msgspec.json.decode(answer, type=LookupReply).used_by or 0

    assert await used_by() == 1
    await world.kube.delete(POOLS, POOL)

    async def deleting() -> bool:
        return await ready_reason(world) == "Deleting"

    await world.until(deleting, "the pool says that it is being deleted")

    async def published() -> bool:
        return bool((await world.newest("pool", POOL))["pool"]["deleting"])

    await world.until(published, "allocators and webhooks know it")
    assert POOL_FINALIZER in (await world.kube.get(POOLS, POOL))["metadata"]["finalizers"]

    name = (await world.claim())["metadata"]["name"]
    await world.kube.delete(PODS, "workload", "default", grace_period_s=0)
    await world.kube.patch(CLAIMS, name, {"metadata": {"finalizers": None}}, "default")
    await world.kube.delete(CLAIMS, name, "default")
    await world.until(lambda: gone(world, POOLS, POOL), "the pool is gone")


async def test_a_decision_that_may_still_be_written_holds_its_pool(world: Any) -> None:
    running = await world.ready(await world.start(hook=hold_before_writing))
    await world.pod()
    await world.decide(await world.decision())
    term, cache = running.controller.term, running.controller.informers.cache
    executions = await world.until(
        lambda: (one := term.followers.executions[POOL]).open and one, "the decision was read"
    )
    now_unix_s = term.publisher.now_unix_s()

    held = reserved_claims(cache, executions, now_unix_s)
    await world.kube.delete(POOLS, POOL)
    await world.until(lambda: cache.pool_selectors.pools()[POOL].deleting, "it is being deleted")

    assert held == (next(iter(cache.claims)),)
    assert not PoolRelease(pool=POOL, reserved=held).answer(cache)
    later = reserved_claims(cache, executions, now_unix_s + HELD_FOR_S)
    assert later == (), "a claim that can't be written holds nothing"
    assert PoolRelease(pool=POOL, reserved=later).answer(cache)


@pytest.mark.parametrize("followed", [True, False])
async def test_a_policy_stays_until_no_pool_follows_it(world: Any, followed: bool) -> None:
    await world.kube.create(POLICIES, {"metadata": {"name": "standard"}, "spec": {}})
    template = {"schedulingConfigTemplate": "standard"}
    await world.kube.patch(POOLS, POOL, {"spec": template})
    await world.ready(await world.start())

    async def kept() -> bool:
        policy = await world.kube.get(POLICIES, "standard")
        return POOL_FINALIZER in (policy["metadata"].get("finalizers") or ())

    await world.until(kept, "the policy has the finalizer")
    if not followed:
        await world.kube.patch(POOLS, POOL, {"spec": {"schedulingConfigTemplate": ""}})
    await world.kube.delete(POLICIES, "standard")
    if followed:
        assert await kept()
        await world.kube.delete(POOLS, POOL)

    await world.until(lambda: gone(world, POLICIES, "standard"), "the policy is gone")
