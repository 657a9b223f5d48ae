"""Remaining objects of deleted pods, and remaining files on the nodes."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from dray.api.names import DERIVED_FROM_LABEL
from dray.kube.ports import BIND_REQUESTS, CLAIMS, PODS, TEMPLATES, Listed, Resource
from dray_node_agent.files.checkpoint import CheckpointFile


def objects(listed: Mapping[Resource, Listed]) -> list[str]:
    """Objects that remain after every pod was deleted."""
    return [
        f"{resource.kind} {obj['metadata']['name']} remains"
        for resource in (PODS, CLAIMS, TEMPLATES, BIND_REQUESTS)
        for obj in listed[resource].objects
        if resource != TEMPLATES or DERIVED_FROM_LABEL in (obj["metadata"].get("labels") or {})
    ]


def files(folder: Path) -> frozenset[str]:
    """Relative paths of all files, sockets and folders below."""
    return frozenset(str(path.relative_to(folder)) for path in folder.rglob("*"))


def without_temporary(paths: frozenset[str]) -> frozenset[str]:
    """Without temporary files."""
    return frozenset(path for path in paths if not path.endswith(".tmp"))


def node_leftovers(folder: Path, before: frozenset[str], nodes: Iterable[str]) -> list[str]:
    """Files that the nodes gained or lost since ``before``, and claims that are still prepared."""
    now = files(folder)
    return [
        *(f"file {path} remains" for path in sorted(now - without_temporary(before))),
        *(f"file {path} is missing" for path in sorted(without_temporary(before) - now)),
        *(line for node in nodes for line in _checkpoint(node, folder / node / "state")),
    ]


def _checkpoint(node: str, state: Path) -> list[str]:
    loaded = CheckpointFile(state / "checkpoint.json", "").load()
    corrupt = [f"the checkpoint of {node} was corrupt: {loaded.corrupt}"] if loaded.corrupt else []
    return corrupt + [f"{node} still has claim {uid} prepared" for uid in sorted(loaded.claims)]
