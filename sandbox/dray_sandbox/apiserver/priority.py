"""The Priority admission plugin."""

from .status import Object, forbidden
from .store import Store

_SYSTEM = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_CLASSES = "scheduling.k8s.io/priorityclasses"


def resolve(store: Store, pod: Object) -> None:
    """Write priority and preemption policy into a new pod; 403 for an unknown class."""
    spec, name = pod["spec"], pod["metadata"].get("name", "")
    wanted = spec.get("priorityClassName", "")
    found = store.get((_CLASSES, "", wanted)) if wanted else _default(store)
    if wanted and found is None and wanted not in _SYSTEM:
        raise forbidden("pods", "", name, f"no PriorityClass with name {wanted} was found")
    found = found or {}
    value = _SYSTEM.get(wanted, found.get("value", 0))
    if spec.get("priority", value) != value:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod "
            f"spec; priority admission controller computed {value} from the given PriorityClass "
            "name"
        )
        raise forbidden("pods", "", name, why)
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", found.get("preemptionPolicy", "PreemptLowerPriority"))
    if found and not wanted:
        spec["priorityClassName"] = found["metadata"]["name"]


def _default(store: Store) -> Object | None:
    classes = [item for item in store.items(_CLASSES) if item.get("globalDefault")]
    return min(classes, key=lambda item: int(item.get("value", 0)), default=None)
