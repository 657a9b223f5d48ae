"""The pods without a node for which a function has a value, kept up to date. Pure."""

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Generic, TypeGuard, TypeVar

from dray_claim_controller.cache.cached_objects import CachedPod
from dray_claim_controller.cache.changes import ChangeFeed, Unread, enter, leave

V = TypeVar("V", bound=Hashable)


class PodSelection(Generic[V]):
    """The pods of ours without a node for which a function is not None. The function is called
    again only for pods that changed, or whose claims did."""

    def __init__(
        self,
        pods: Mapping[str, CachedPod],
        value: Callable[[CachedPod], V | None],
        unread: Unread[str],
    ) -> None:
        """``pods``: all pods of ours, now and later."""
        self._pods = pods
        self._value = value
        self._unread = unread
        self.values: dict[str, V] = {}
        """By UID."""
        self.changed: ChangeFeed[V] = ChangeFeed()
        """Values that a pod got or lost."""
        self._uids: dict[V, dict[str, None]] = {}

    def with_value(self, value: V) -> Collection[str]:
        """UIDs of the pods for which the function is ``value``."""
        return self._uids.get(value, {}).keys()

    def refresh(self, most: int | None = None) -> bool:
        """Take changes into account, of at most ``most`` pods. Returns whether any are left."""
        for uid in self._unread.take(most):
            cached = self._pods.get(uid)
            found = self._value(cached) if _is_unbound(cached) else None
            known = self.values.get(uid)
            if known == found:
                continue
            if known is not None:
                del self.values[uid]
                leave(self._uids, known, uid)
                self.changed.put(known)
            if found is not None:
                self.values[uid] = found
                enter(self._uids, found, uid)
                self.changed.put(found)
        return bool(self._unread)


def _is_unbound(cached: CachedPod | None) -> TypeGuard[CachedPod]:
    """Whether a pod of ours is not being deleted, and lacks a node in its cached form or its
    converted form."""
    pod = None if cached is None else cached.pod
    return pod is not None and not pod.deleting and not (pod.node and cached and cached.node)
