"""CDI specifications: how a container runtime adds cards to a container.

One transient file per claim, written whole or not at all. A name never gets other content,
because runtimes cache: names contain the claim's uid, and a claim's allocation is immutable.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dray_node_agent.disk import write_atomically

VENDOR = "tensor-fusion.ai"
CLASS = "gpu"
KIND = f"{VENDOR}/{CLASS}"

Spec = dict[str, Any]


def cdi_device(claim_uid: str, device: str) -> str:
    """Name of a card within a claim's specification."""
    return f"{claim_uid}-{device}"


def cdi_id(claim_uid: str, device: str) -> str:
    """Fully qualified name, as the kubelet hands it to the runtime."""
    return f"{KIND}={cdi_device(claim_uid, device)}"


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


class CdiFolder:
    """The folder of transient specifications that the container runtime reads.

    Methods block for the time of an fsync, and raise OSError.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, claim_uid: str) -> Path:
        """File of a claim."""
        return self._folder / f"{VENDOR}-{CLASS}_{claim_uid}.json"

    def write(self, claim_uid: str, spec: Spec) -> None:
        """Write a claim's file; one that is there with the same content stays untouched."""
        text = json.dumps(spec, indent=2, sort_keys=True) + "\n"
        path = self.path(claim_uid)
        if not path.exists() or path.read_text() != text:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text.encode(), mode=0o644)

    def remove(self, claim_uid: str) -> None:
        """Remove a claim's file; absent is fine."""
        self.path(claim_uid).unlink(missing_ok=True)

    def claims(self) -> tuple[str, ...]:
        """UIDs of the claims that have a file here, sorted."""
        prefix, suffix = f"{VENDOR}-{CLASS}_", ".json"
        names = os.listdir(self._folder) if self._folder.is_dir() else []
        return tuple(
            sorted(
                name.removeprefix(prefix).removesuffix(suffix)
                for name in names
                if name.startswith(prefix) and name.endswith(suffix)
            )
        )
