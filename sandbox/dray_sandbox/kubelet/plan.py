"""A simulated node's name, folders and capacity."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dray.api.errors import InvalidInputError

HOST: Final = "localhost"
"""The host of the simulated kubelets. The nodes' own addresses are invented."""
NODE_CAPACITY = {
    "cpu": "64",
    "memory": "512Gi",
    "ephemeral-storage": "1Ti",
    "pods": "110",
}


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node with a stand-in kubelet. Its ``capacity`` is also allocatable."""

    name: str
    plugins_dir: Path
    registry_dir: Path
    cdi_dir: Path
    labels: dict[str, str] = field(default_factory=dict)
    capacity: dict[str, str] = field(default_factory=lambda: dict(NODE_CAPACITY))
    token_file: Path | None = None
    """The file of the node-agent's token for NATS; None: it needs none."""
    containers_port: int = 0
    """The port on which the API server asks for logs and commands; 0: none."""

    @property
    def pod_resources(self) -> Path:
        """The socket on which the kubelet lists its containers' devices."""
        return self.plugins_dir.parent / "pod-resources" / "kubelet.sock"


def parse_node(text: str) -> NodePlan:
    """A plan from ``NAME:PLUGINS_DIR:REGISTRY_DIR:CDI_DIR[:TOKEN_FILE]``. Raises
    InvalidInputError."""
    parts = text.split(":")
    if len(parts) not in (4, 5) or not all(parts):
        raise InvalidInputError(
            f"node {text!r}: expected NAME:PLUGINS_DIR:REGISTRY_DIR:CDI_DIR[:TOKEN_FILE]"
        )
    name, *paths = parts
    plugins, registry, cdi, *token = map(Path, paths)
    return NodePlan(name, plugins, registry, cdi, token_file=token[0] if token else None)


def parse_pairs(text: str) -> dict[str, str]:
    """``key=value,key=value`` as a dict. Raises InvalidInputError."""
    pairs = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not key or not equals:
            raise InvalidInputError(f"{part!r}: expected key=value")
        pairs[key] = value
    return pairs


def parse_label(text: str) -> tuple[str, dict[str, str]]:
    """Node and labels from ``NODE:key=value,…``. Raises InvalidInputError."""
    node, colon, pairs = text.partition(":")
    if not node or not colon:
        raise InvalidInputError(f"label {text!r}: expected NODE:key=value")
    return node, parse_pairs(pairs)
