"""What dray reports about pods that are not bound, and which have waited for it too long."""

from collections.abc import Callable, Iterator
from typing import Final

from dray.kube.convert import pod_from, time_from
from dray.kube.memory_store import MemoryStore
from dray.kube.ports import BIND_REQUESTS, EVENTS, PODS, POOLS, Object

TELL_WITHIN_S: Final = 10.0
"""A pod is bound, or has heard why it is not, so soon after it was created. In calm all are within
3 s; one retry of its own takes 5 s at most."""
_COMPONENTS: Final = "tensor-fusion.ai/"
"""How the names of dray's components begin in what they report."""


def explanation(store: MemoryStore, pod: Object) -> str:
    """Why the pod waits: what its BindRequest says, and dray's warnings about it."""
    metadata = pod["metadata"]
    request = store.of(BIND_REQUESTS).get((metadata["namespace"], metadata["name"])) or {}
    is_own = (request.get("spec") or {}).get("podUID") == metadata["uid"]
    status = (request.get("status") or {}) if is_own else {}
    return "\n".join(
        [
            status.get("explanation") or "",
            *(
                event["message"]
                for event in store.of(EVENTS).values()
                if event["involvedObject"].get("uid") == metadata["uid"]
                and event["type"] == "Warning"
                and event.get("reportingComponent", "").startswith(_COMPONENTS)
            ),
        ]
    ).strip()


def silent(
    store: MemoryStore, *, now_unix_s: float, since_unix_s: float, exempt: Callable[[Object], bool]
) -> Iterator[str]:
    """Pods that were not bound and not given a reason in time, counted from their creation and
    from ``since_unix_s``."""
    for pod in store.of(PODS).values():
        created_unix_s = time_from(pod["metadata"].get("creationTimestamp"))
        age_s = now_unix_s - max(created_unix_s, since_unix_s)
        if age_s <= TELL_WITHIN_S or pod["spec"].get("nodeName") or exempt(pod):
            continue
        read = pod_from(pod)
        if not read.claims or read.deleting or ("", read.pool) not in store.of(POOLS):
            continue
        if not explanation(store, pod):
            yield f"pod {read.name} is not bound and was not told why for {age_s:.0f} s"
