"""What the API server keeps, found by dry-run creation and by what is dropped from the answer.

Versions don't tell: a feature gate may be off on a server that knows the field. A server
that does not know it drops it silently, and that shows.
"""

import asyncio
from typing import Any, Final

from dray.domain.names import DRIVER
from dray.kube.ports import (
    CLAIMS,
    SLICES,
    Kube,
    NotFoundError,
    Object,
    RefusedError,
)
from dray.messages.facts import ClusterObserved

_NAME: Final = "dray-probe"
_SHARED: Final = "shared"


async def probe(kube: Kube, namespace: str, *, revision: int) -> ClusterObserved:
    """What the server keeps, as the fact to publish.

    ``namespace`` must exist. Raises KubeUnavailableError, and RefusedError when even the
    plainest slice is refused: then resource.k8s.io/v1 is not served as dray needs it.
    """
    version, shared, tainted, claim = await asyncio.gather(
        kube.version(),
        _kept(kube, _slice(allowMultipleAllocations=True, capacity=_capacity())),
        _kept(kube, _slice(taints=[_taint()])),
        _kept_claim(kube, namespace),
    )
    return ClusterObserved(
        revision=revision,
        version=version,
        consumable_capacity=_device(shared).get("allowMultipleAllocations") is True
        and "requestPolicy" in _device(shared).get("capacity", {}).get(_SHARED, {})
        and _asks_capacity(claim),
        device_taints=bool(_device(tainted).get("taints")),
        allocation_timestamp=await _keeps_timestamp(kube),
    )


async def _keeps_timestamp(kube: Kube) -> bool:
    """Whether ``allocationTimestamp`` is kept.

    A claim's status can't be given at creation, so there is no dry-run of it. It came with
    device binding conditions (1.36 on by default): their device field shows the gate.
    """
    conditions, failures = ["dray.dev/ready"], ["dray.dev/failed"]
    try:
        answer = await kube.create(
            SLICES,
            _slice(bindingConditions=conditions, bindingFailureConditions=failures),
            dry_run=True,
        )
    except RefusedError:
        return True
    return bool(_device(answer).get("bindingConditions"))


async def _kept(kube: Kube, wanted: Object) -> Object:
    return await kube.create(SLICES, wanted, dry_run=True)


async def _kept_claim(kube: Kube, namespace: str) -> Object:
    claim: dict[str, Any] = {
        "metadata": {"name": _NAME, "namespace": namespace},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "gpu",
                        "exactly": {
                            "deviceClassName": DRIVER,
                            "capacity": {"requests": {_SHARED: "1"}},
                        },
                    }
                ]
            }
        },
    }
    try:
        return await kube.create(CLAIMS, claim, namespace, dry_run=True)
    except NotFoundError as error:
        raise RefusedError(
            f"can't probe in the namespace {namespace}: {error}; create it first", 404
        ) from error


def _slice(**device: Any) -> Object:
    return {
        "metadata": {"name": _NAME},
        "spec": {
            "driver": DRIVER,
            "nodeName": _NAME,
            "pool": {"name": _NAME, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", **device}],
        },
    }


def _capacity() -> dict[str, Any]:
    return {
        _SHARED: {
            "value": "10",
            "requestPolicy": {"default": "10", "validRange": {"min": "1"}},
        }
    }


def _taint() -> dict[str, str]:
    return {"key": "dray.dev/probe", "effect": "NoSchedule"}


def _device(answer: Object) -> dict[str, Any]:
    devices = answer["spec"].get("devices") or [{}]
    first: dict[str, Any] = devices[0]
    return first


def _asks_capacity(claim: Object) -> bool:
    exactly = claim["spec"]["devices"]["requests"][0].get("exactly") or {}
    return bool((exactly.get("capacity") or {}).get("requests"))
