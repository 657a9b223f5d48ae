"""CDI specifications: how a container runtime adds cards to a container. Pure.

One transient specification per claim. A name never gets other content, because runtimes
cache: names contain the claim's uid, and a claim's allocation is immutable.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dray.domain.names import API_GROUP

VENDOR = API_GROUP
CLASS = "gpu"
KIND = f"{VENDOR}/{CLASS}"

Spec = dict[str, Any]


def cdi_device(claim_uid: str, device: str, container: str = "") -> str:
    """Name of a card within a claim's specification; of one container's share of it, if named.

    No device's name has a dot.
    """
    return f"{claim_uid}-{device}.{container}" if container else f"{claim_uid}-{device}"


def cdi_id(claim_uid: str, device: str, container: str = "") -> str:
    """Fully qualified name, as the kubelet hands it to the runtime."""
    return f"{KIND}={cdi_device(claim_uid, device, container)}"


def device_entry(name: str, env: Mapping[str, str], nodes: Sequence[str]) -> Spec:
    """One device of a specification with its edits."""
    edits: Spec = {"env": [f"{key}={value}" for key, value in sorted(env.items())]}
    if nodes:
        edits["deviceNodes"] = [{"path": path} for path in nodes]
    return {"name": name, "containerEdits": edits}


def spec_of(devices: Sequence[Spec]) -> Spec:
    """The specification; its version is the oldest that has what it uses.

    Names that begin with a digit came with 0.5.0, all else here is 0.3.0's.
    """
    digits = any(device["name"][0].isdigit() for device in devices)
    return {
        "cdiVersion": "0.5.0" if digits else "0.3.0",
        "kind": KIND,
        "devices": list(devices),
    }
