"""Which pods refer to which claims. Pure."""

from collections.abc import Iterator

from dray.api.claims import Claim
from dray.api.pods import Pod

ClaimName = tuple[str, str]
"""Namespace and name."""


class ClaimUsers:
    """Pods of ours by the claims that they name."""

    def __init__(self) -> None:
        self._pods: dict[ClaimName, dict[str, Pod]] = {}

    def of(self, claim: Claim) -> Iterator[Pod]:
        """Pods that refer to the claim."""
        yield from self._pods.get((claim.namespace, claim.name), {}).values()

    def put(self, before: Pod | None, after: Pod | None) -> tuple[ClaimName, ...]:
        """Note that a pod changed or is gone (None). Returns the claims that it refers or referred
        to, if these or the pod's pool changed."""
        old = _names_of(before)
        new = _names_of(after)
        for name in old:
            self._pods[name].pop(before.uid if before is not None else "", None)
            if not self._pods[name] and name not in new:
                del self._pods[name]
        for name in new:
            if after is not None:
                self._pods.setdefault(name, {})[after.uid] = after
        same = before is not None and after is not None and before.pool == after.pool
        return () if same and old == new else tuple(dict.fromkeys((*old, *new)))


def _names_of(pod: Pod | None) -> tuple[ClaimName, ...]:
    """The claims that a pod names, as far as their names are known."""
    if pod is None:
        return ()
    return tuple(dict.fromkeys((pod.namespace, one.claim) for one in pod.claims if one.claim))
