"""Requests that the in-memory API server refuses until the refusal is withdrawn."""

from dataclasses import dataclass
from typing import Final

from dray.kube.ports import KubeError, Resource

_WRITES: Final = ("create", "update", "patch", "delete", "bind", "evict")


@dataclass(frozen=True, slots=True)
class KubeCall:
    """A call of a method of ``Kube``."""

    method: str
    resource: Resource
    name: str = ""
    namespace: str = ""
    subresource: str = ""
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class InjectedRefusal:
    """The server's answer to certain requests, until it is withdrawn.

    It simulates a policy, a quota, an admission webhook that is down for one namespace, or an
    object at a limit. An empty field matches everything.
    """

    error: KubeError
    method: str = ""
    """A method of ``Kube``; empty: every method that writes."""
    resource: Resource | None = None
    namespace: str = ""
    name: str = ""
    subresource: str | None = None
    """Empty: only the object itself."""
    delay_s: float = 0.0
    """How long the answer takes."""
    after: bool = False
    """Whether the request is executed anyway, and only its answer is lost."""

    def meets(self, request: KubeCall) -> bool:
        """Whether this is the answer to the request."""
        return (
            (request.method == self.method if self.method else request.method in _WRITES)
            and self.resource in (None, request.resource)
            and self.namespace in ("", request.namespace)
            and self.name in ("", request.name)
            and self.subresource in (None, request.subresource)
        )
