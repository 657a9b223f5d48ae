"""CDI specifications, with which a container runtime adds GPUs to a container.

One transient specification per claim. Runtimes cache, so the content of a name never changes: names
contain the claim's uid, and a claim's allocation is immutable.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dray.api.names import API_GROUP

VENDOR = API_GROUP
CLASS = "gpu"
KIND = f"{VENDOR}/{CLASS}"

Spec = dict[str, Any]


def cdi_device(claim_uid: str, device: str, container: str = "") -> str:
    """Name of a GPU, or of a container's share of it, in a claim's specification.

    Device names have no dot.
    """
    return f"{claim_uid}-{device}.{container}" if container else f"{claim_uid}-{device}"


def cdi_id(claim_uid: str, device: str, container: str = "") -> str:
    """The fully qualified name that the kubelet passes to the runtime."""
    return f"{KIND}={cdi_device(claim_uid, device, container)}"


def device_entry(name: str, env: Mapping[str, str], nodes: Sequence[str]) -> Spec:
    """One device of a specification with its edits; ``nodes`` are those of ``Gpu``."""
    edits: Spec = {"env": [f"{key}={value}" for key, value in sorted(env.items())]}
    if nodes:
        edits["deviceNodes"] = [_device_node(node) for node in nodes]
    return {"name": name, "containerEdits": edits}


def _device_node(node: str) -> Spec:
    host_path, colon, path = node.partition(":")
    return {"path": path, "hostPath": host_path} if colon else {"path": node}


def spec_of(devices: Sequence[Spec]) -> Spec:
    """The specification, of the oldest version with the features it uses.

    0.5.0 allows names that begin with a digit, and device nodes of another name than the host's;
    the rest is in 0.3.0.
    """
    newer = any(device["name"][0].isdigit() or _is_renamed(device) for device in devices)
    return {
        "cdiVersion": "0.5.0" if newer else "0.3.0",
        "kind": KIND,
        "devices": list(devices),
    }


def _is_renamed(device: Spec) -> bool:
    return any("hostPath" in node for node in device["containerEdits"].get("deviceNodes", ()))
