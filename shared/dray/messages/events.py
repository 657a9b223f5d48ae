"""Events that no state depends on: admission, execution and preparation of a pod."""

from typing import ClassVar

from dray.messages.base import Kind, Message


class PodRequested(Message, frozen=True, kw_only=True):
    """The webhook admitted a pod (never on dry-run). This is only a hint: pods are observed by a
    watch."""

    KIND: ClassVar[Kind] = "evt"
    NAME: ClassVar[str] = "pod.requested"

    request_id: str
    namespace: str
    name: str
    """Empty if the pod has a ``generateName``."""
    pool: str
    template: str
    """Derived template, ``<base>-<hash>``."""
    understood: dict[str, str]
    """A summary of the annotations, for people."""
    traceparent: str = ""
    took_us: int = 0

    def ids(self) -> tuple[str, ...]:
        return (self.pool, self.request_id)

    def key(self) -> str:
        return self.request_id


class ClaimPrepared(Message, frozen=True, kw_only=True):
    """The node-agent prepared a claim's devices."""

    KIND: ClassVar[Kind] = "evt"
    NAME: ClassVar[str] = "claim.prepared"

    claim_uid: str
    namespace: str
    name: str
    node: str
    cdi_device_ids: tuple[str, ...]
    env: dict[str, str]
    now_unix_s: float
    took_us: int = 0
    traceparent: str = ""

    def ids(self) -> tuple[str, ...]:
        return (self.node, self.claim_uid)

    def key(self) -> str:
        return f"{self.claim_uid}@{self.now_unix_s:.6f}"


class ExecutionStep(Message, frozen=True, kw_only=True):
    """A step of a decision's execution, for timelines."""

    KIND: ClassVar[Kind] = "evt"
    NAME: ClassVar[str] = "claim.executed"

    pod_uid: str
    namespace: str
    name: str
    claim: str
    attempt: int
    step: str
    """``committed``, ``awaiting`` (the devices), ``bound``, ``ungated`` or ``failed``; ``detail``
    names the awaited condition, or the failure."""
    now_unix_s: float
    detail: str = ""
    traceparent: str = ""

    def ids(self) -> tuple[str, ...]:
        return (self.pod_uid, self.step)

    def key(self) -> str:
        return f"{self.pod_uid}.{self.claim}.{self.attempt}.{self.step}"


EVENTS: tuple[type[Message], ...] = (PodRequested, ClaimPrepared, ExecutionStep)
