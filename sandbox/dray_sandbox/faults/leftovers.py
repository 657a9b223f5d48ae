"""What nobody took away: objects of pods that are gone, and files on the nodes."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from dray.api.names import DERIVED_FROM_LABEL
from dray.kube.ports import BIND_REQUESTS, CLAIMS, PODS, TEMPLATES, Listed, Resource
from dray_node_agent.files.checkpoint import CheckpointFile


def objects(listed: Mapping[Resource, Listed]) -> list[str]:
    """What is there although every pod was deleted."""
    return [
        f"{resource.kind} {obj['metadata']['name']} is left"
        for resource in (PODS, CLAIMS, TEMPLATES, BIND_REQUESTS)
        for obj in listed[resource].objects
        if resource != TEMPLATES or DERIVED_FROM_LABEL in (obj["metadata"].get("labels") or {})
    ]


def files(folder: Path) -> frozenset[str]:
    """Every file, socket and folder below, by its path from there."""
    return frozenset(str(path.relative_to(folder)) for path in folder.rglob("*"))


def lasting(paths: frozenset[str]) -> frozenset[str]:
    """Without what was just being written."""
    return frozenset(path for path in paths if not path.endswith(".tmp"))


def on_nodes(folder: Path, before: frozenset[str], nodes: Iterable[str]) -> list[str]:
    """What the nodes have more or less than ``before``, and claims their agents still hold."""
    now = files(folder)
    return [
        *(f"file {path} is left" for path in sorted(now - lasting(before))),
        *(f"file {path} is gone" for path in sorted(lasting(before) - now)),
        *(line for node in nodes for line in _checkpoint(node, folder / node / "state")),
    ]


def _checkpoint(node: str, state: Path) -> list[str]:
    loaded = CheckpointFile(state / "checkpoint.json", "").load()
    corrupt = [f"the checkpoint of {node} was corrupt: {loaded.corrupt}"] if loaded.corrupt else []
    return corrupt + [f"{node} still has claim {uid} prepared" for uid in sorted(loaded.claims)]
