"""DeviceTaintRules are facts where the server has them; where it has not, nobody waits for them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from dray.api.devices import DeviceTaintRule, Taint
from dray.kube.memory import MemoryKube
from dray.kube.ports import (
    TAINT_RULES,
    TAINT_RULES_BETA,
    Listed,
    NotFoundError,
    Object,
    RefusedError,
    Resource,
    WatchEvent,
)
from dray.messages.facts import TaintRuleObserved
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.facts.build import NodeHistory, fact_of
from dray_claim_controller.informers import Informers

RULE: Object = {
    "metadata": {"name": "rule", "uid": "u", "resourceVersion": "7"},
    "spec": {
        "deviceSelector": {"driver": "d.x", "device": "gpu-0"},
        "taint": {"key": "repair", "effect": "NoExecute"},
    },
}


class OldServer(MemoryKube):
    """Serves DeviceTaintRules in ``versions`` alone."""

    def __init__(self, *versions: str, refuses: bool = False) -> None:
        super().__init__()
        self.versions = versions
        self.refuses = refuses

    def lacks(self, resource: Resource) -> bool:
        return resource.plural == TAINT_RULES.plural and resource.version not in self.versions

    async def list(self, resource: Resource, namespace: str = "", **selectors: Any) -> Listed:
        if self.lacks(resource):
            raise RefusedError("no", 403) if self.refuses else NotFoundError("no such resource")
        return await super().list(resource, namespace, **selectors)

    async def watch(
        self, resource: Resource, namespace: str = "", **selectors: Any
    ) -> AsyncIterator[WatchEvent]:
        assert not self.lacks(resource), "a watch of what is not served never begins"
        async for event in super().watch(resource, namespace, **selectors):
            yield event


async def watched(kube: MemoryKube) -> Informers:
    """A picture that has everything, its watches ended."""
    informers = Informers(kube, ObjectCache())
    task = asyncio.create_task(informers.run())
    async with asyncio.timeout(30):
        await informers.synced()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return informers


def reported(cache: ObjectCache) -> Any:
    return fact_of(cache, FactKey("taintrule", "rule"), NodeHistory())


async def test_a_server_without_them_keeps_nobody_waiting() -> None:
    informers = await watched(OldServer())
    assert reported(informers.cache) is None
    await informers.relist()


async def test_nor_does_one_that_does_not_let_them_be_read() -> None:
    informers = await watched(OldServer(refuses=True))
    assert informers.cache.synced


async def test_they_are_read_in_the_version_that_is_served() -> None:
    for version, resource in (("v1", TAINT_RULES), ("v1beta2", TAINT_RULES_BETA)):
        kube = OldServer(version)
        await kube.create(resource, {"metadata": {"name": "rule"}, "spec": RULE["spec"]})
        informers = await watched(kube)
        await informers.relist()
        found = reported(informers.cache)
        assert isinstance(found, TaintRuleObserved)
        assert found.rule.taint == Taint("repair", "", "NoExecute")


def test_a_rule_says_which_devices_it_is_about() -> None:
    cache = ObjectCache()
    cache.apply(TAINT_RULES, Listed((RULE,), 7))
    taint = Taint("repair", "", "NoExecute")
    rule = DeviceTaintRule("rule", taint, "d.x", "", "gpu-0")
    assert reported(cache) == TaintRuleObserved(revision=7, rule=rule)
    assert rule.selects("d.x", "any", "gpu-0")
    assert not rule.selects("d.x", "any", "gpu-1")
    assert not rule.selects("d.y", "any", "gpu-0")
    cache.apply(TAINT_RULES, Listed((), 8))
    assert reported(cache) is None
