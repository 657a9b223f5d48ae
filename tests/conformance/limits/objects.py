"""Claims, templates and slices at the limits of Kubernetes, as its API server takes them."""

from typing import Any

import msgspec

from dray.api import names
from dray.kube.ports import Object
from tools.faults.plan import DEDICATED

NAMESPACE = "default"
NAME = "odd"
LONGEST_NAME = f"{'long-' * 50}one"
"""253 characters."""
ANNOTATIONS_BYTES = 256 * 1024
"""So long all keys and values of an object may be together."""
PARAMETERS_BYTES = 10 * 1024
"""So long the parameters of one entry of a claim's config may be."""
DEEPEST = 10_000
"""kube-apiserver reads no JSON of more levels."""
AMOUNTS = {names.TFLOPS: "1", names.VRAM: "1Gi"}
OTHER_DRIVER = "gpu.example.com"


def metadata(name: str = NAME, **more: Any) -> Object:
    """Of an object that belongs to the pool."""
    return {"name": name, "labels": {names.POOL_LABEL: DEDICATED}, **more}


def request(name: str = "gpu", **more: Any) -> Object:
    """A small share of one card."""
    capacity = {"requests": AMOUNTS}
    exactly = {"deviceClassName": names.DEVICE_CLASS, "capacity": capacity, **more}
    return {"name": name, "exactly": exactly}


def of_size(size_bytes: int, device_class: str = names.DEVICE_CLASS) -> Object:
    """The devices of a claim of so many bytes, nearly: its selectors are long."""
    text = f"'{'y' * 9_900}' != device.driver"
    requests = []
    for first in range(0, size_bytes // 10_000, 32):
        selectors = [{"cel": {"expression": text}}] * min(32, size_bytes // 10_000 - first)
        exactly = {"deviceClassName": device_class, "selectors": selectors}
        if device_class == names.DEVICE_CLASS:
            exactly["capacity"] = {"requests": AMOUNTS}
        requests.append({"name": f"gpu-{len(requests)}", "exactly": exactly})
    return {"requests": requests}


def claim(devices: Object | None = None, **more: Any) -> Object:
    """One of dray's class that names the pool."""
    return {
        "metadata": metadata(**more),
        "spec": {"devices": devices or {"requests": [request()]}},
    }


def with_parameters(text: bytes, driver: str = OTHER_DRIVER) -> Object:
    """Devices whose claim has these parameters for a driver; only that one reads them."""
    parameters = msgspec.Raw(text)
    config = [{"opaque": {"driver": driver, "parameters": parameters}}]
    return {"requests": [request()], "config": config}


def parameters_of(config: Any) -> bytes:
    """Of the first entry of a claim's config, as they were sent or as they were allocated."""
    return msgspec.json.encode(config[0]["opaque"]["parameters"])


def nested(levels: int) -> bytes:
    """An object whose only value is an array in an array, and so on."""
    return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def managed(levels: int) -> Object:
    """Managed fields nested that deep: every writer of an object can set them."""
    deepest = b'{"f:a":' * (levels - 1) + b"{}" + b"}" * (levels - 1)
    entry = {
        "manager": "somebody",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": msgspec.Raw(deepest),
    }
    return {"managedFields": [entry]}


def annotations(size_bytes: int) -> dict[str, str]:
    """Of so many bytes, keys and values together."""
    key = "example.com/notes"
    return {key: "x" * (size_bytes - len(key))}
