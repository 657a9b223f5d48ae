"""Voids of claims that the server stores only if they become no larger."""

import msgspec
import pytest

from dray.api.names import DECISION, VOID
from dray.kube.memory import MemoryKube
from dray.kube.ports import (
    CLAIMS,
    NAMESPACES,
    KubeError,
    KubeUnavailableError,
    Object,
    RefusedError,
    Resource,
)
from dray.runtime.clock import SystemClock
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.execution.rollback import VoidWriter
from dray_claim_controller.execution.writes import ExecutionWrites
from dray_claim_controller.informers import Informers

ATTEMPT = 1_000_001


class FullClaims(MemoryKube):
    """Its claims have no room for more annotations."""

    def __init__(self, error: KubeError) -> None:
        super().__init__()
        self.error = error

    async def patch(self, resource: Resource, name: str, patch, namespace="", **more) -> Object:
        before = self.store.get(resource, name, namespace)["metadata"]["annotations"]
        changed = {**before, **patch["metadata"]["annotations"]}
        after = {key: value for key, value in changed.items() if value is not None}
        if len(msgspec.json.encode(after)) > len(msgspec.json.encode(before)):
            raise self.error
        return await super().patch(resource, name, patch, namespace, **more)


@pytest.mark.parametrize(
    "error",
    [
        RefusedError("metadata.annotations: Too long: may not be more than 262144", 422),
        KubeUnavailableError("etcdserver: request is too large"),
    ],
    ids=["422", "500"],
)
async def test_a_void_takes_the_place_of_the_mark_where_there_is_room_for_no_more(
    error: KubeError,
) -> None:
    kube = FullClaims(error)
    await kube.create(NAMESPACES, {"metadata": {"name": "ns"}})
    claim: Object = {
        "metadata": {"name": "claim", "annotations": {DECISION: str(ATTEMPT)}},
        "spec": {"devices": {}},
    }
    made = await kube.create(CLAIMS, claim, "ns")
    informers = Informers(kube, ObjectCache())
    informers.apply_response(CLAIMS, made)
    voids = VoidWriter(kube, informers, SystemClock(), ExecutionWrites(kube, lambda: None))

    await voids.void(made["metadata"]["uid"], ATTEMPT, is_last_try=True)

    stored = await kube.get(CLAIMS, "claim", "ns")
    assert stored["metadata"]["annotations"] == {VOID: str(ATTEMPT)}
    assert not informers.cache.given_up
