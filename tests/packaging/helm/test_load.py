"""The load of the tests with real clusters, on an API server in memory."""

import asyncio
from typing import Any, cast

import pytest
from tests.packaging.helm.installation import Cluster
from tests.packaging.helm.load import under_load

from dray.kube.memory import MemoryKube
from dray.kube.ports import PODS, Object, Resource

RUN = 5


class Kubelet(MemoryKube):
    """The first pods run at once, further ones never."""

    def __init__(self) -> None:
        super().__init__()
        self._created = 0
        self.waits = asyncio.Event()

    async def create(
        self, resource: Resource, obj: Object, namespace: str = "", *, dry_run: bool = False
    ) -> Object:
        self._created += 1
        made = await super().create(resource, obj, namespace, dry_run=dry_run)
        if self._created > RUN:
            self.waits.set()
            return made
        running = {**made, "status": {"phase": "Running"}}
        return await self.update(resource, running, subresource="status")


async def failing_load(cluster: Cluster, kube: Kubelet) -> None:
    async with under_load(cluster, per_s=100):
        await kube.waits.wait()
        raise AssertionError("the rollout failed")


async def test_a_load_that_fails_leaves_no_pods() -> None:
    kube = Kubelet()
    cluster = Cluster(cast(Any, None), kube, helm_program="")

    with pytest.raises(ExceptionGroup):
        await failing_load(cluster, kube)

    assert list((await kube.list(PODS)).objects) == []
