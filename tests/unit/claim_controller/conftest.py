"""Builders of the values that the rules decide upon."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from dray.api.claims import AllocatedDevice, Allocation, Claim, ClaimSpec
from dray.api.devices import DeviceId
from dray.api.names import CLAIM_FINALIZER, DRIVER, OWNER_DRAY
from dray.api.pods import Pod
from dray.bus.memory import MemoryBus
from dray.bus.topology import STREAMS
from dray.kube.object_text import text_of
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_claim_controller.cache.cached_objects import CachedResourceClaim
from dray_claim_controller.execution.decisions.next_step import Observed

ATTEMPT = 1_000_001


class Make:
    """Small values with defaults."""

    @staticmethod
    def allocation(
        device: str = "gpu-0", node: str = "node-1", consumed: dict[str, str] | None = None
    ) -> Allocation:
        taken = {"virtual_tflops": "100"} if consumed is None else consumed
        device_id = DeviceId(DRIVER, node, device)
        return Allocation((AllocatedDevice("gpu-request", device_id, consumed=taken),), node)

    @staticmethod
    def claim(
        *, protected: bool = True, revision: int = 10, watched: int = 10, **fields: Any
    ) -> CachedResourceClaim:
        claim = Claim(
            **{
                "uid": "c",
                "namespace": "ns",
                "name": "claim",
                "resource_version": revision,
                "pool": "p",
                "spec": ClaimSpec(),
                **fields,
            }
        )
        finalizers = [CLAIM_FINALIZER] if protected else []
        text = text_of({"metadata": {"finalizers": finalizers}})
        return CachedResourceClaim(claim, text, True, watched, claim.void)

    @staticmethod
    def pod(**fields: Any) -> Pod:
        return Pod(
            **{
                "uid": "p",
                "namespace": "ns",
                "name": "pod",
                "resource_version": 5,
                "pool": "p",
                "scheduler": "tensor-fusion-scheduler",
                **fields,
            }
        )

    def decision(self, *, binder: str = OWNER_DRAY, attempt: int = ATTEMPT) -> PodDecision:
        claim = ClaimDecision(
            uid="c", namespace="ns", name="claim", attempt=attempt, allocation=self.allocation()
        )
        return PodDecision(
            pod_uid="p",
            namespace="ns",
            name="pod",
            node="node-1",
            binder=binder,
            claims=(claim,),
        )

    @staticmethod
    def observed(pod: Pod | None, *claims: CachedResourceClaim, **fields: Any) -> Observed:
        return Observed(
            **{
                "epoch": 1,
                "pod": pod,
                "claims": {seen.claim.uid: seen for seen in claims},
                **fields,
            }
        )


@pytest.fixture
def make() -> Make:
    """Builders."""
    return Make()


@pytest.fixture
async def bus() -> AsyncIterator[MemoryBus]:
    """A bus with dray's streams."""
    made = MemoryBus()
    for spec in STREAMS:
        await made.ensure(spec)
    yield made
    await made.close()
