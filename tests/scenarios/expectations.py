"""What a scenario expects of a cluster, and where the cluster differs."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol


class ObservedCluster(Protocol):
    """What is seen of a cluster."""

    @property
    def refusals(self) -> Mapping[str, str]:
        """Why objects were refused at admission, by name."""
        ...

    def running(self) -> list[str]:
        """Pods that have a node and have not ended; sorted."""
        ...

    def nodes(self) -> dict[str, list[str]]:
        """The pods of each node that has some."""
        ...

    def status(self, name: str) -> dict[str, Any]:
        """The status of a PodGroup."""
        ...

    def why(self, name: str) -> str:
        """Why a pod waits."""
        ...

    def holds(self, prefix: str) -> int:
        """How many devices the claims of the pods with such names hold."""
        ...

    def consumers(self, prefix: str) -> list[str]:
        """The kinds of those for whom claims with such names are reserved; sorted."""
        ...


def check(cluster: ObservedCluster, expected: Mapping[str, Any]) -> list[str]:
    """Sentences about what differs; empty: nothing does."""
    return [problem for key, value in expected.items() for problem in _one(cluster, key, value)]


def _one(cluster: ObservedCluster, key: str, value: Any) -> Iterator[str]:
    match key:
        case "running":
            found = cluster.running()
            is_so = len(found) == value if isinstance(value, int) else found == sorted(value)
            if not is_so:
                yield f"running: {found}, expected {value}"
        case "spread":
            counts = sorted(map(len, cluster.nodes().values()))
            if counts != value:
                yield f"pods per node: {counts}, expected {value}"
        case "together":
            yield from _together(cluster.nodes(), value)
        case "holds":
            yield from _differences({name: cluster.holds(name) for name in value}, value)
        case "consumers":
            yield from _differences({name: cluster.consumers(name) for name in value}, value)
        case "groups":
            for name, parts in value.items():
                yield from _group(name, cluster.status(name), parts)
        case "why":
            for name, text in value.items():
                if text not in cluster.why(name):
                    yield f"{name} waits because {cluster.why(name)!r}, expected {text!r}"
        case "refused":
            for name, text in value.items():
                if text not in cluster.refusals.get(name, ""):
                    yield f"{name}: refused with {cluster.refusals.get(name)!r}, expected {text!r}"
        case "evicted" | "rolled_back" | "decisions":
            found = getattr(cluster, key, value)  # Stacks do not show it.
            found = sorted(found() if callable(found) else found)
            if found != sorted(value):
                yield f"{key}: {found}, expected {sorted(value)}"
        case _:
            yield f"unknown expectation {key}"


def _together(nodes: Mapping[str, list[str]], pairs: list[list[str]]) -> Iterator[str]:
    """Pods of a list share a node."""
    for names in pairs:
        if not any(set(names) <= set(there) for there in nodes.values()):
            yield f"{names} do not share a node: {dict(nodes)}"


def _group(name: str, status: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    conditions = status.get("conditions") or ()
    by_type = {one["type"]: one for one in conditions}
    waits = by_type.get("Unschedulable") or by_type.get("PodGroupInitiallyScheduled") or {}
    texts = " | ".join(str(one.get("message") or "") for one in conditions)
    for key, value in expected.items():
        match key:
            case "says":
                is_so, found = value in texts, texts
            case "reason":
                is_so, found = waits.get("reason") == value, str(waits.get("reason"))
            case "initially":
                condition = by_type.get("PodGroupInitiallyScheduled") or {}
                is_so, found = condition.get("status") == value, str(condition)
            case _:
                is_so, found = status.get(key) == value, str(status.get(key))
        if not is_so:
            yield f"{key} of group {name}: {found}, expected {value}"


def _differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    for name, value in expected.items():
        if found[name] != value:
            yield f"{name}: {found[name]}, expected {value}"
