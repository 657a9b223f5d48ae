"""The API server's feature gates, found by dry-run creation: disabled fields are dropped.

The version is not enough: a feature gate may be off on a server that knows the field. A server with
the gate off silently drops the field from its answer.
"""

import asyncio
from typing import Any, Final

from dray.api.names import DRIVER
from dray.kube.ports import (
    CLAIMS,
    CLASSES,
    SLICES,
    Kube,
    NotFoundError,
    Object,
    RefusedError,
)
from dray.messages.facts import ClusterObserved

_NAME: Final = "dray-probe"
_CLASS: Final = "probe.dray.dev"
_NO_DEVICE: Final = [{"cel": {"expression": f'device.driver == "{_CLASS}"'}}]
"""Selectors of dry-run claims. They match no device: dray's own webhook may be unreachable while
gates are probed, or may deny claims that could get dray's devices."""
_SHARED: Final = "shared"
_NOT_ALLOWED: Final = (401, 403)


async def probe(
    kube: Kube, namespace: str, *, revision: int, classes: bool = True
) -> ClusterObserved:
    """The gates of the server, as the fact to publish.

    ``namespace`` must exist. ``classes``: whether this user may try to create a DeviceClass. No
    dray service may do that. Raises KubeUnavailableError, and RefusedError if even the simplest
    slice is refused: then resource.k8s.io/v1 is not served as dray needs it, or this user may not
    ask.
    """
    version, served, shared, tainted, claim = await asyncio.gather(
        kube.version(),
        kube.served_versions(CLAIMS.group),
        _kept(kube, _slice(allowMultipleAllocations=True, capacity=_capacity())),
        _kept(kube, _slice(taints=[_taint()])),
        _kept_claim(kube, namespace, _asking_capacity()),
    )
    conditions, counters, lists, alternatives, extended = await asyncio.gather(
        _keeps_conditions(kube),
        _keeps_counters(kube),
        _keeps_lists(kube),
        _keeps_alternatives(kube, namespace),
        _keeps_extended_resource(kube) if classes else _unasked(),
    )
    return ClusterObserved(
        revision=revision,
        version=version,
        consumable_capacity=_device(shared).get("allowMultipleAllocations") is True
        and "requestPolicy" in _device(shared).get("capacity", {}).get(_SHARED, {})
        and bool(_exactly(claim).get("capacity", {}).get("requests")),
        device_taints=bool(_device(tainted).get("taints")),
        # A claim's status can't be set at creation, so it can't be probed. The timestamp was added
        # with the binding conditions and has the same gate.
        allocation_timestamp=conditions,
        binding_conditions=conditions,
        partitionable_devices=counters,
        prioritized_list=alternatives,
        list_attributes=lists,
        extended_resources=extended,
        served_versions=served,
    )


async def _keeps_conditions(kube: Kube) -> bool:
    """Whether ``bindingConditions`` are kept. A server that refuses these conditions knows the
    field."""
    conditions, failures = ["dray.dev/ready"], ["dray.dev/failed"]
    wanted = _slice(bindingConditions=conditions, bindingFailureConditions=failures)
    try:
        answer = await _kept(kube, wanted)
    except RefusedError as error:
        _raise_unless_judged(error)
        return True
    return bool(_device(answer).get("bindingConditions"))


async def _keeps_counters(kube: Kube) -> bool:
    """Whether ``sharedCounters`` are kept. Kubernetes 1.36 requires a slice without devices for
    them."""
    wanted = _slice()
    del wanted["spec"]["devices"]
    wanted["spec"]["sharedCounters"] = [
        {"name": "counters", "counters": {"slices": {"value": "8"}}}
    ]
    try:
        return bool((await _kept(kube, wanted))["spec"].get("sharedCounters"))
    except RefusedError as error:
        _raise_unless_judged(error)
        return True


async def _keeps_lists(kube: Kube) -> bool:
    """Whether an attribute with several values is kept. Without the gate it has no value left."""
    try:
        answer = await _kept(kube, _slice(attributes={"hosts": {"strings": ["a", "b"]}}))
    except RefusedError as error:
        _raise_unless_judged(error)
        return False
    return bool(_device(answer).get("attributes", {}).get("hosts", {}).get("strings"))


async def _keeps_alternatives(kube: Kube, namespace: str) -> bool:
    """Whether ``firstAvailable`` is kept. Without the gate the request is empty and refused."""
    alternative = {"name": "any", "deviceClassName": _CLASS, "selectors": _NO_DEVICE}
    try:
        answer = await _kept_claim(kube, namespace, {"firstAvailable": [alternative]})
    except RefusedError as error:
        _raise_unless_judged(error)
        return False
    return bool(answer["spec"]["devices"]["requests"][0].get("firstAvailable"))


async def _keeps_extended_resource(kube: Kube) -> bool | None:
    """Whether a class may name an extended resource; None if this user may not ask."""
    wanted = {"metadata": {"name": _NAME}, "spec": {"extendedResourceName": "dray.dev/probe"}}
    try:
        answer = await kube.create(CLASSES, wanted, dry_run=True)
    except RefusedError:
        return None
    return "extendedResourceName" in answer["spec"]


async def _unasked() -> None:
    """Not probed."""


def _raise_unless_judged(error: RefusedError) -> None:
    """Raise the error if the object was not checked, because the user may not ask. A server that
    has just started denies every request until it has loaded its roles."""
    if error.status in _NOT_ALLOWED:
        raise error


async def _kept(kube: Kube, wanted: Object) -> Object:
    return await kube.create(SLICES, wanted, dry_run=True)


async def _kept_claim(kube: Kube, namespace: str, request: Object) -> Object:
    claim: dict[str, Any] = {
        "metadata": {"name": _NAME, "namespace": namespace},
        "spec": {"devices": {"requests": [{"name": "gpu", **request}]}},
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


def _asking_capacity() -> dict[str, Any]:
    exactly = {
        "deviceClassName": _CLASS,
        "selectors": _NO_DEVICE,
        "capacity": {"requests": {_SHARED: "1"}},
    }
    return {"exactly": exactly}


def _exactly(claim: Object) -> dict[str, Any]:
    exactly: dict[str, Any] = claim["spec"]["devices"]["requests"][0].get("exactly") or {}
    return exactly
