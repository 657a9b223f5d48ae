"""Slices and claims of a small cluster."""

from typing import Any

from dray.api.names import DRIVER

REQUEST = {"name": "gpu-request", "exactly": {"deviceClassName": DRIVER}}


def device(
    name: str,
    bus: str = "",
    *,
    pool: str = "my-pool",
    phase: str = "Running",
    taint: str = "",
    used_by: str = "",
) -> dict[str, Any]:
    """A GPU of 100 TFLOPS and 40 GiB, as the node-agent publishes it."""
    attributes = {"model": "A100", "pool_name": pool, "phase": phase, "uuid": name.upper()}
    attributes["used_by"] = used_by
    if bus:
        attributes["resource.kubernetes.io/pciBusID"] = bus
    capacity = {"virtual_tflops": "100", "virtual_vram": "40Gi", "vram": "40Gi"}
    taints = [{"key": "tensor-fusion.ai/unhealthy", "value": taint, "effect": "NoSchedule"}]
    return {
        "name": name,
        "attributes": {key: {"string": value} for key, value in attributes.items()},
        "capacity": {key: {"value": value} for key, value in capacity.items()},
        **({"taints": taints} if taint else {}),
    }


def slice_of(
    node: str, *devices: dict[str, Any], generation: int = 1, driver: str = DRIVER
) -> dict[str, Any]:
    """A ResourceSlice of one node."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{generation}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }


def claim(
    name: str,
    *gpus: str,
    node: str = "n1",
    tflops: str = "25",
    vram: str = "8Gi",
    reserved: bool = True,
    **result: Any,
) -> dict[str, Any]:
    """A claim of the pod ``<name>`` that holds a share of each named GPU."""
    consumed = {"virtual_tflops": tflops, "virtual_vram": vram, "vram": "0"}
    results = [
        {
            "driver": DRIVER,
            "pool": node,
            "device": gpu,
            "request": "gpu-request",
            **({"consumedCapacity": consumed} if tflops else {}),
            **result,
        }
        for gpu in gpus
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"{name}-claim",
            "namespace": "team",
            "ownerReferences": [{"kind": "Pod", "name": name, "uid": "u"}],
        },
        "spec": {"devices": {"requests": [REQUEST]}},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": "u"}] if reserved else [],
        },
    }
