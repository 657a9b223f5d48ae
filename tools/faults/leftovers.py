"""Remaining objects of deleted pods, and remaining files on the nodes."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from dray.api.names import DERIVED_FROM_LABEL
from dray.kube.ports import BIND_REQUESTS, CLAIMS, PODS, TEMPLATES, Listed, Resource
from dray_node_agent.files.checkpoint import CheckpointFile

INSTANCE: Final = re.compile(r"(?<=-)[0-9a-f]{8}(?=[-.])")
"""The part of a socket's name that differs by process (``sockets`` of the node-agent)."""


def objects(listed: Mapping[Resource, Listed]) -> list[str]:
    """Objects that remain after every pod was deleted."""
    return [
        f"{resource.kind} {obj['metadata']['name']} remains"
        for resource in (PODS, CLAIMS, TEMPLATES, BIND_REQUESTS)
        for obj in listed[resource].objects
        if resource != TEMPLATES or DERIVED_FROM_LABEL in (obj["metadata"].get("labels") or {})
    ]


def files(folder: Path) -> Counter[str]:
    """Relative paths of all files, sockets and folders below, and how many there are.

    Sockets of an agent have a new name after each restart; only its ``INSTANCE`` part differs.
    """
    return Counter(_name(path, folder) for path in folder.rglob("*"))


def _name(path: Path, folder: Path) -> str:
    name = str(path.relative_to(folder))
    return INSTANCE.sub("*", name) if path.suffix == ".sock" else name


def node_leftovers(folder: Path, before: Counter[str], nodes: Iterable[str]) -> list[str]:
    """Files that the nodes gained or lost since ``before``, and claims that are still prepared."""
    now = files(folder)
    lasting = Counter({name: n for name, n in before.items() if not name.endswith(".tmp")})
    return [
        *(f"file {path} remains" for path in sorted((now - lasting).elements())),
        *(f"file {path} is missing" for path in sorted((lasting - now).elements())),
        *(line for node in nodes for line in _checkpoint(node, folder / node / "state")),
    ]


def _checkpoint(node: str, state: Path) -> list[str]:
    loaded = CheckpointFile(state / "checkpoint.json", "").load()
    corrupt = [f"the checkpoint of {node} was corrupt: {loaded.corrupt}"] if loaded.corrupt else []
    return corrupt + [f"{node} still has claim {uid} prepared" for uid in sorted(loaded.claims)]
