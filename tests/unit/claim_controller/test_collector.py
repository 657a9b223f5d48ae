"""Deleting templates while others come and go."""

from typing import Any

from dray.domain.names import DERIVED_FROM_LABEL
from dray.kube.memory import MemoryKube
from dray.kube.ports import TEMPLATES, Resource
from dray.runtime.clock import ManualClock
from dray_claim_controller.garbage.collector import Collector
from dray_claim_controller.observe.picture import Picture
from dray_claim_controller.observe.watching import Watching

NAMES = ("first", "second")


class BusyServer(MemoryKube):
    """While the first one is deleted another user does something, and the watches tell it."""

    watching: Watching

    async def meanwhile(self) -> None:
        """Nothing."""

    async def delete(
        self, resource: Resource, name: str, namespace: str = "", **options: Any
    ) -> None:
        """One deletion."""
        await super().delete(resource, name, namespace, **options)
        if name == NAMES[0]:
            await self.meanwhile()
            await self.watching.relist()


class OthersDelete(BusyServer):
    """They delete the other one."""

    async def meanwhile(self) -> None:
        await self.delete(TEMPLATES, NAMES[1], "ns")


class OthersMakeAnew(OthersDelete):
    """They make the other one anew: another object of the same name."""

    async def meanwhile(self) -> None:
        await super().meanwhile()
        await self.create(TEMPLATES, template(NAMES[1]), "ns")


def template(name: str) -> dict[str, Any]:
    labels = {DERIVED_FROM_LABEL: "base"}
    return {"metadata": {"name": name, "namespace": "ns", "labels": labels}, "spec": {}}


async def collected(kube: BusyServer) -> list[str]:
    """What is left of two unused templates after a round."""
    for name in NAMES:
        await kube.create(TEMPLATES, template(name), "ns")
    kube.watching = Watching(kube, Picture())
    await kube.watching.relist()
    await Collector(kube, kube.watching, ManualClock(), after_s=0.0, every_s=1.0).collect()
    return [one["metadata"]["name"] for one in (await kube.list(TEMPLATES)).objects]


async def test_templates_may_go_while_another_is_deleted() -> None:
    assert await collected(OthersDelete()) == []


async def test_a_template_made_anew_meanwhile_stays() -> None:
    assert await collected(OthersMakeAnew()) == [NAMES[1]]
