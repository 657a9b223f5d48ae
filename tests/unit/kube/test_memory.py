"""What Kubernetes in memory offers to tests beyond the port."""

import asyncio
from contextlib import aclosing

import pytest
from tests.virtual_time import LoopClock, run_virtually

from dray.kube.memory import MemoryKube
from dray.kube.memory_refusals import InjectedRefusal
from dray.kube.ports import (
    CLAIMS,
    LEASES,
    PODS,
    POOLS,
    Changed,
    ConflictError,
    KubeUnavailableError,
    Listed,
    NotFoundError,
    RefusedError,
    Resource,
)


def lease(name: str, **metadata) -> dict:
    return {"metadata": {"name": name, **metadata}, "spec": {}}


async def test_requests_are_refused_to_every_client_until_that_is_over() -> None:
    kube = MemoryKube()
    for name in ("a", "b"):
        await kube.create(LEASES, lease(name), "n")
    over = kube.refuse(InjectedRefusal(RefusedError("policy", 403), "patch", LEASES, "n", "a"))
    for client in (kube, kube.peer()):
        for _ in range(2):
            with pytest.raises(RefusedError, match="policy"):
                await client.patch(LEASES, "a", {"metadata": {"labels": {"l": "1"}}}, "n")
        await client.patch(LEASES, "b", {"metadata": {"labels": {"l": "1"}}}, "n")
        assert (await client.get(LEASES, "a", "n"))["metadata"]["name"] == "a"
    over()
    await kube.patch(LEASES, "a", {"metadata": {"labels": {"l": "1"}}}, "n")


async def test_a_refusal_may_concern_every_write_or_a_subresource_alone() -> None:
    kube = MemoryKube()
    await kube.create(POOLS, {"metadata": {"name": "p"}, "spec": {}})
    over = kube.refuse(
        InjectedRefusal(RefusedError("policy", 403), resource=POOLS, subresource="status")
    )
    with pytest.raises(RefusedError):
        await kube.patch(POOLS, "p", {"status": {"nodes": 1}}, subresource="status")
    await kube.patch(POOLS, "p", {"metadata": {"labels": {"l": "1"}}})
    over()
    kube.refuse(InjectedRefusal(RefusedError("policy", 403), resource=POOLS))
    with pytest.raises(RefusedError):
        await kube.delete(POOLS, "p")
    with pytest.raises(RefusedError):
        await kube.create(POOLS, {"metadata": {"name": "q"}, "spec": {}})


async def test_a_refused_request_may_have_been_carried_out() -> None:
    kube = MemoryKube()
    await kube.create(LEASES, lease("a"), "n")
    kube.refuse(InjectedRefusal(KubeUnavailableError("no answer"), "delete", after=True))
    with pytest.raises(KubeUnavailableError):
        await kube.delete(LEASES, "a", "n")
    assert not kube.store.of(LEASES)


def test_a_server_that_takes_long_gives_a_request_up_in_time() -> None:
    async def main(clock: LoopClock) -> None:
        kube = MemoryKube()
        await kube.create(LEASES, lease("a"), "n")
        refusal = InjectedRefusal(RefusedError("policy", 403), "patch", LEASES, delay_s=30.0)
        kube.refuse(refusal)
        with pytest.raises(KubeUnavailableError, match="requested timeout"):
            await kube.patch(LEASES, "a", {"metadata": {}}, "n", timeout_s=5.0)
        assert clock.monotonic_s() < 5.1
        with pytest.raises(RefusedError):
            await kube.patch(LEASES, "a", {"metadata": {}}, "n")
        assert clock.monotonic_s() > 35.0

    run_virtually(main)


async def test_a_call_may_be_made_to_fail_before_or_after_its_work() -> None:
    kube = MemoryKube()
    kube.fail_next("create", KubeUnavailableError("away"))
    kube.fail_next("create", KubeUnavailableError("answer lost"), after=True)
    with pytest.raises(KubeUnavailableError, match="away"):
        await kube.create(LEASES, lease("a"), "n")
    with pytest.raises(NotFoundError):
        await kube.get(LEASES, "a", "n")
    with pytest.raises(KubeUnavailableError, match="answer lost"):
        await kube.create(LEASES, lease("a"), "n")
    assert (await kube.get(LEASES, "a", "n"))["metadata"]["name"] == "a"


async def test_a_caller_may_be_held_asleep_while_another_writes() -> None:
    kube = MemoryKube()
    sleeper = kube.peer()
    held, woken = asyncio.Event(), asyncio.Event()

    async def sleep(resource: Resource, name: str) -> None:
        assert (resource, name) == (CLAIMS, "c")
        held.set()
        await woken.wait()

    sleeper.before["patch"] = sleep
    request = {"name": "gpu", "exactly": {"deviceClassName": "k"}}
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
    made = await kube.create(CLAIMS, claim, "n")
    version = made["metadata"]["resourceVersion"]
    late = asyncio.create_task(
        sleeper.patch(CLAIMS, "c", {"metadata": {"resourceVersion": version}}, "n")
    )
    await held.wait()
    await kube.patch(CLAIMS, "c", {"metadata": {"annotations": {"void": "1"}}}, "n")
    woken.set()
    with pytest.raises(ConflictError, match="has been modified"):
        await late


async def test_held_watches_make_one_client_stale() -> None:
    kube = MemoryKube()
    stale = kube.peer()
    async with (
        asyncio.timeout(10),
        aclosing(kube.watch(LEASES)) as fresh_watch,
        aclosing(stale.watch(LEASES)) as stale_watch,
    ):
        await anext(fresh_watch)
        await anext(stale_watch)
        stale.hold_watches()
        await kube.create(LEASES, lease("a"), "n")
        assert isinstance(await anext(fresh_watch), Changed)
        waiting = asyncio.ensure_future(anext(stale_watch))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        stale.release_watches()
        assert isinstance(await waiting, Changed)


async def test_expired_watches_list_again() -> None:
    kube = MemoryKube()
    async with asyncio.timeout(10), aclosing(kube.watch(LEASES)) as watch:
        await anext(watch)
        await kube.create(LEASES, lease("a"), "n")
        await anext(watch)
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        kube.expire_watches()
        listed = await waiting
        assert isinstance(listed, Listed)
        assert [obj["metadata"]["name"] for obj in listed.objects] == ["a"]


async def test_what_lost_its_owners_is_collected() -> None:
    kube = MemoryKube()
    owner = await kube.create(LEASES, lease("owner"), "n")
    reference = {"kind": "Lease", "name": "owner", "uid": owner["metadata"]["uid"]}
    child = await kube.create(LEASES, lease("child", ownerReferences=[reference]), "n")
    second = {"kind": "Lease", "name": "child", "uid": child["metadata"]["uid"]}
    await kube.create(LEASES, lease("grandchild", ownerReferences=[second]), "n")
    assert kube.collect_garbage() == 0
    await kube.delete(LEASES, "owner", "n")
    assert kube.collect_garbage() == 2
    assert not (await kube.list(LEASES)).objects


async def test_generations_count_changes_of_the_spec_of_own_kinds() -> None:
    kube = MemoryKube()
    made = await kube.create(POOLS, {"metadata": {"name": "p"}, "spec": {}, "status": {"x": 1}})
    assert made["metadata"]["generation"] == 1
    assert "status" not in made
    changed = await kube.patch(POOLS, "p", {"spec": {"dedicated": True}})
    assert changed["metadata"]["generation"] == 2
    shown = await kube.patch(POOLS, "p", {"status": {"nodes": 3}}, subresource="status")
    assert shown["metadata"]["generation"] == 2
    assert shown["status"] == {"nodes": 3}


async def test_answers_are_copies() -> None:
    kube = MemoryKube()
    made = await kube.create(LEASES, lease("a"), "n")
    made["spec"]["holderIdentity"] = "changed"
    (await kube.list(LEASES)).objects[0]["spec"]["holderIdentity"] = "changed"
    assert (await kube.get(LEASES, "a", "n"))["spec"] == {}


async def test_a_selector_that_can_not_be_read_is_refused() -> None:
    with pytest.raises(RefusedError, match="unable to parse"):
        await MemoryKube().list(PODS, label_selector="a in (b")
