"""One pod and the messages about it."""

from typing import Any

from dray.api import names
from dray.api.claims import AllocatedDevice, Allocation
from dray.api.devices import DeviceId
from dray.messages.decisions import ClaimDecision, PodDecision, Waiting
from dray.messages.events import ClaimPrepared, ExecutionStep, PodRequested
from dray.reasons import Reason

TRACE = "0123456789abcdef0123456789abcdef"
TRACEPARENT = f"00-{TRACE}-0123456789abcdef-01"
MS = 1_000_000
REASON = Reason("capacity", "free vram", 8, 8)
CLAIM = ClaimDecision(
    uid="c",
    namespace="default",
    name="train-gpu",
    attempt=7,
    allocation=Allocation(
        (AllocatedDevice("r", DeviceId(names.DRIVER, "n1", "gpu-0"), None, {"virtual_vram": "1"}),)
    ),
)
PLACED = PodDecision(
    pod_uid="u",
    namespace="default",
    name="train",
    node="n1",
    binder="dray",
    claims=(CLAIM,),
    request_id="r",
    traceparent=TRACEPARENT,
    took_us=500,
)
REQUESTED = PodRequested(
    request_id="r",
    namespace="default",
    name="train",
    pool="fast",
    template="base-1",
    understood={"vram": "1"},
    traceparent=TRACEPARENT,
    took_us=2000,
)


def waiting_record() -> Waiting:
    return Waiting(**head(), pod_uid="u", namespace="default", name="train", reasons=(REASON,))


def head() -> dict[str, Any]:
    return {"domain": "fast", "epoch": 1, "writer": "a", "facts_sequence": 1, "now_unix_s": 1.0}


def step(what: str, at: float) -> ExecutionStep:
    return ExecutionStep(
        pod_uid="u",
        namespace="default",
        name="train",
        claim="train-gpu",
        attempt=7,
        step=what,
        now_unix_s=at,
    )


def prepared(at: float) -> ClaimPrepared:
    return ClaimPrepared(
        claim_uid="c",
        namespace="default",
        name="train-gpu",
        node="n1",
        cdi_device_ids=("d",),
        env={},
        now_unix_s=at,
        took_us=1000,
    )


def a_pod(uid: str = "u") -> dict[str, Any]:
    annotations = {
        names.REQUEST_ID: "r",
        names.TRACEPARENT: TRACEPARENT,
        names.GPUPOOL: "fast",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train",
            "namespace": "default",
            "uid": uid,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": annotations,
        },
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    }
