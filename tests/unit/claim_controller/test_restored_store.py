"""The store of the API server is restored from an older backup: what is gone frees its devices, and
what is back counts again, with the revisions above the old ones (``--bump-revision``) or below."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.unit.claim_controller.test_object_cache import allocated, claim
from tests.unit.claim_controller.test_publisher import created, publisher

from dray.bus.memory import MemoryBus
from dray.bus.topology import FACTS_STREAM
from dray.kube.memory import MemoryKube
from dray.kube.ports import (
    CLAIMS,
    PODS,
    POOLS,
    Changed,
    Deleted,
    KubeUnavailableError,
    Listed,
    NotFoundError,
    Object,
    Resource,
    Transform,
    WatchEvent,
)
from dray.messages.base import decode
from dray.messages.facts import ClaimObserved
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.informers import Informers


def held(cache: ObjectCache) -> set[str]:
    return {device.device for device, claims in cache.devices.holders.items() if claims}


async def claim_facts(bus: MemoryBus) -> dict[str, ClaimObserved]:
    """The newest fact of each claim, by UID."""
    facts: dict[str, ClaimObserved] = {}
    async for delivered in bus.read(FACTS_STREAM):
        if ".claim." in delivered.subject:
            fact = decode(delivered, ClaimObserved)
            facts[fact.claim.uid] = fact
        if not delivered.pending:
            break
    return facts


def test_a_claim_that_is_back_holds_its_devices_again() -> None:
    cache = ObjectCache()
    cache.apply(CLAIMS, Changed(claim(5, allocation=allocated())))
    cache.apply(CLAIMS, Deleted(claim(7)))
    # A list that was on its way when the claim was deleted says nothing.
    cache.apply(CLAIMS, Listed((claim(5, allocation=allocated()),), 6))
    assert not held(cache)

    cache.apply(CLAIMS, Listed((claim(5, allocation=allocated()),), 1_000))
    assert held(cache) == {"gpu-0"}
    cache.apply(CLAIMS, Deleted(claim(1_001)))
    cache.apply_response(CLAIMS, claim(1_000))
    assert not cache.claims


def test_an_object_is_in_the_older_version_that_a_later_list_shows() -> None:
    cache = ObjectCache()
    cache.apply(CLAIMS, Changed(claim(9, allocation=allocated())))
    cache.apply(CLAIMS, Listed((claim(5),), 8))
    assert held(cache) == {"gpu-0"}, "it may be newer than the list"

    cache.apply(CLAIMS, Listed((claim(5),), 9))
    assert not held(cache)
    assert cache.claims["c"].claim.resource_version == 5


async def test_the_facts_follow(bus: MemoryBus) -> None:
    cache = ObjectCache()
    leader = publisher(bus, cache)
    await leader.begin(await created(bus))
    cache.apply(CLAIMS, Listed((claim(9, "kept", allocation=allocated("gpu-0")),), 9))
    cache.apply(CLAIMS, Changed(claim(10, "back", allocation=allocated("gpu-1"))))
    await leader.flush()
    cache.apply(CLAIMS, Deleted(claim(12, "back")))
    cache.apply(CLAIMS, Changed(claim(14, "vanishes", allocation=allocated("gpu-2"))))
    await leader.flush()

    restored = (claim(5, "kept"), claim(10, "back", allocation=allocated("gpu-1")))
    cache.apply(CLAIMS, Listed(restored, 14))
    await leader.flush()

    facts = await claim_facts(bus)
    assert {uid: fact.deleted for uid, fact in facts.items()} == {
        "kept": False,
        "back": False,
        "vanishes": True,
    }
    assert facts["kept"].claim.allocation is None
    assert facts["back"].claim.allocation is not None


async def test_a_leader_that_begins_after_the_restoration_publishes_what_the_store_has(
    bus: MemoryBus,
) -> None:
    """Its revisions are below those of the facts, so that no later list would tell the leader."""
    former = ObjectCache()
    leader = publisher(bus, former)
    await leader.begin(await created(bus))
    former.apply(CLAIMS, Listed((claim(9, "freed"), claim(8, "kept"), claim(9, "gone")), 9))
    await leader.flush()

    cache = ObjectCache()
    leader = publisher(bus, cache, "two")
    await leader.begin(await created(bus))
    store = Listed((claim(5, "freed", allocation=allocated()), claim(8, "kept")), 8)
    cache.apply(CLAIMS, store)
    assert await leader.kinds_behind() == [CLAIMS]
    cache.apply(CLAIMS, store)
    await leader.note_restored()
    await leader.publish_everything()

    facts = await claim_facts(bus)
    assert {uid: fact.deleted for uid, fact in facts.items()} == {
        "freed": False,
        "kept": False,
        "gone": True,
    }
    assert facts["freed"].claim.allocation is not None
    cache.apply(CLAIMS, Changed(claim(7, "freed")))
    await leader.flush()
    assert not leader._restored


class RestoredKube(MemoryKube):
    """Its watch of claims shows an older state once, and its lists what the store has then."""

    def __init__(self, before: tuple[Object, ...], after: tuple[Object, ...]) -> None:
        super().__init__()
        self.before, self.after = before, after
        self.revision = 0

    async def watch(  # type: ignore[override]
        self, resource: Resource, *, transform: Transform
    ) -> AsyncIterator[WatchEvent]:
        if resource is CLAIMS:
            yield Listed(tuple(map(transform, self.before)), 14)
            yield Listed(tuple(map(transform, self.after)), 8, is_older=True)
        else:
            yield Listed((), 14)
        await asyncio.Event().wait()

    async def list(  # type: ignore[override]
        self, resource: Resource, *, transform: Transform | None = None
    ) -> Listed:
        if resource is CLAIMS and transform is not None:
            return Listed(tuple(map(transform, self.after)), self.revision)
        self.revision += 4
        if self.revision == 8:
            raise KubeUnavailableError("away again")
        return Listed((), self.revision)


async def test_kinds_are_listed_again_once_the_server_has_reached_its_old_revision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Up to then a claim that the older state lacks may have been made since."""
    monkeypatch.setattr("dray_claim_controller.informers._AGAIN_S", 0.0)
    monkeypatch.setattr("dray_claim_controller.informers.WATCHED", (CLAIMS, PODS, POOLS))
    kube = RestoredKube((claim(14, allocation=allocated()),), ())
    informers = Informers(kube, ObjectCache())
    seen: list[bool] = []
    informers.listeners.append(lambda *_: seen.append("c" in informers.cache.claims))
    task = asyncio.create_task(informers.run())
    async with asyncio.timeout(10):
        while len(seen) < 4 or informers._restored:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert seen[-1], "the older list alone takes nothing away"
    assert kube.revision == 16
    assert "c" not in informers.cache.claims
    task.cancel()


class RefusingKube(RestoredKube):
    """It was restored to a time before pods were served; all that it lists is counted."""

    listed = 0

    async def list(  # type: ignore[override]
        self, resource: Resource, *, transform: Transform | None = None
    ) -> Listed:
        if resource is PODS:
            raise NotFoundError("pods are not served")
        self.listed += resource is CLAIMS
        return await super().list(resource, transform=transform)


async def test_a_kind_that_is_not_served_any_more_has_no_other_listed_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dray_claim_controller.informers._AGAIN_S", 0.0)
    monkeypatch.setattr("dray_claim_controller.informers.WATCHED", (CLAIMS, POOLS))
    kube = RefusingKube((claim(14, allocation=allocated()),), ())
    informers = Informers(kube, ObjectCache())
    informers._restored[PODS] = 14
    task = asyncio.create_task(informers.run())
    async with asyncio.timeout(10):
        while kube.revision < 40:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert kube.listed == 1
    assert list(informers._restored) == [PODS]
    task.cancel()
