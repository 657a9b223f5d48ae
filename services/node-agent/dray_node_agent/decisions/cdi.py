"""CDI specifications, with which a container runtime adds GPUs to a container.

There is one transient specification per claim. Runtimes cache it by name, so the content of a name
never changes: names contain the claim's uid, and a claim's allocation is immutable.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dray.api.names import API_GROUP
from dray_node_agent.decisions.gpus import CdiEdits, Gpu

VENDOR = API_GROUP
CLASS = "gpu"
_KIND = f"{VENDOR}/{CLASS}"
CONTAINER_CLASS = "container"
"""Class of CDI devices that each have everything one container gets through the device plugin."""
CONTAINER_KIND = f"{VENDOR}/{CONTAINER_CLASS}"

Spec = dict[str, Any]


def cdi_device(claim_uid: str, device: str, container: str = "") -> str:
    """Name of a GPU, or of a container's share of it, in a claim's specification.

    Device names have no dot.
    """
    return f"{claim_uid}-{device}.{container}" if container else f"{claim_uid}-{device}"


def cdi_id(claim_uid: str, device: str, container: str = "") -> str:
    """The fully qualified name that the kubelet passes to the runtime."""
    return f"{_KIND}={cdi_device(claim_uid, device, container)}"


def device_entry(
    name: str, env: Mapping[str, str], gpu: CdiEdits, mounts: Sequence[Spec] = ()
) -> Spec:
    """One device of a specification with its edits; ``gpu``: see ``gpu_edits``."""
    own = [f"{key}={value}" for key, value in sorted(env.items())]
    edits = {**gpu, "env": [*gpu.get("env", ()), *own]}
    if mounts:
        edits["mounts"] = [*gpu.get("mounts", ()), *mounts]
    return {"name": name, "containerEdits": edits}


def gpu_edits(gpu: Gpu) -> CdiEdits:
    """The edits that give a container a GPU."""
    if gpu.edits or not gpu.device_nodes:
        return gpu.edits
    return {"deviceNodes": [_device_node(node) for node in gpu.device_nodes]}


def _device_node(node: str) -> Spec:
    host_path, colon, path = node.partition(":")
    return {"path": path, "hostPath": host_path} if colon else {"path": node}


def spec_of(
    devices: Sequence[Spec], driver: CdiEdits = MappingProxyType({}), *, kind: str = _KIND
) -> Spec:
    """The specification, in the oldest version that has the features it uses: a runtime refuses
    versions that it does not know. ``driver``: the edits that every container needs."""
    spec: Spec = {"kind": kind, "devices": list(devices)}
    if driver:
        spec["containerEdits"] = dict(driver)
    return {"cdiVersion": _minimum_version(spec), **spec}


def _minimum_version(spec: Spec) -> str:
    """The oldest CDI version that has all features in use (``MinimumRequiredVersion`` of the
    reference implementation)."""
    devices = spec["devices"]
    edits = [spec.get("containerEdits") or {}, *(one["containerEdits"] for one in devices)]
    mounts = [mount for edit in edits for mount in edit.get("mounts", ())]
    nodes = [node for edit in edits for node in edit.get("deviceNodes", ())]
    for version, is_used in (
        ("1.1.0", any("netDevices" in edit for edit in edits)),
        ("0.7.0", any("intelRdt" in edit or "additionalGids" in edit for edit in edits)),
        ("0.6.0", "annotations" in spec or any("annotations" in one for one in devices)),
        ("0.5.0", any(one["name"][0].isdigit() for one in devices)),
        ("0.5.0", any("hostPath" in node for node in nodes)),
        ("0.4.0", any("type" in mount for mount in mounts)),
    ):
        if is_used:
            return version
    return "0.3.0"
