"""Deleting templates while others come and go."""

import asyncio
from typing import Any

from tests.virtual_time import LoopClock, run_virtually

from dray.api.names import DERIVED_FROM_LABEL
from dray.kube.memory import MemoryKube
from dray.kube.ports import TEMPLATES, Resource
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.garbage.reconciler import GarbageReconciler
from dray_claim_controller.informers import Informers

NAMES = ("first", "second")


class BusyServer(MemoryKube):
    """While the first one is deleted another user does something, and the watches tell it."""

    informers: Informers

    async def meanwhile(self) -> None:
        """Nothing."""

    async def delete(
        self, resource: Resource, name: str, namespace: str = "", **options: Any
    ) -> None:
        """One deletion."""
        await super().delete(resource, name, namespace, **options)
        if name == NAMES[0]:
            await self.meanwhile()
            await self.informers.relist()


class OthersDelete(BusyServer):
    """They delete the other one."""

    async def meanwhile(self) -> None:
        await self.delete(TEMPLATES, NAMES[1], "ns")


class OthersCreateAgain(OthersDelete):
    """They create the other one again: another object of the same name."""

    async def meanwhile(self) -> None:
        await super().meanwhile()
        await self.create(TEMPLATES, template(NAMES[1]), "ns")


def template(name: str) -> dict[str, Any]:
    labels = {DERIVED_FROM_LABEL: "base"}
    return {"metadata": {"name": name, "namespace": "ns", "labels": labels}, "spec": {}}


def collected(make: type[BusyServer]) -> list[str]:
    """What is left of two unused templates after a round."""

    async def main(clock: LoopClock) -> list[str]:
        kube = make()
        for name in NAMES:
            await kube.create(TEMPLATES, template(name), "ns")
        kube.informers = Informers(kube, ObjectCache())
        await kube.informers.relist()
        collector = GarbageReconciler(kube, kube.informers, clock, after_s=0.0, every_s=100.0)
        collecting = asyncio.create_task(collector.run())
        await clock.sleep(1)
        assert not collecting.done()
        return [one["metadata"]["name"] for one in (await kube.list(TEMPLATES)).objects]

    return run_virtually(main)


def test_templates_may_go_while_another_is_deleted() -> None:
    assert collected(OthersDelete) == []


def test_a_template_created_again_meanwhile_stays() -> None:
    assert collected(OthersCreateAgain) == [NAMES[1]]
