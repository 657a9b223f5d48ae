"""The claim-controller's spans in pods' traces: template, claim, execution, taking back.

Sampled pods alone cost anything. Attributes are named by OpenTelemetry's conventions for
Kubernetes and messaging where those know the thing, else ``dray.…``.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Literal

from dray.domain.names import TRACEPARENT as CLAIM_TRACEPARENT
from dray.domain.pods import Pod
from dray.messages.base import subject_of
from dray.messages.decisions import log_subject
from dray.messages.facts import ClaimObserved, Fact
from dray.telemetry import Span, is_sampled, start
from dray_claim_controller.execute.orders import Order
from dray_claim_controller.execute.progress import Progress
from dray_claim_controller.observe.seen import SeenClaim, SeenPod

TRACEPARENT: Final = "traceparent"
"""The header of a record that tells the position of the decision."""
MESSAGE_ID: Final = "ce-id"
"""The header that tells a message's id, for those that it causes."""
_FAILED: Final = ("failed", "stopped")

Attributes = dict[str, str | int | float | bool]


class Executions:
    """The spans of what is being carried out, one per pod."""

    def __init__(self) -> None:
        self._spans: dict[str, Span] = {}

    @contextmanager
    def carrying_out(self, order: Order, epoch: int) -> Iterator[None]:
        """Around an execution."""
        position = order.traceparent or order.decision.traceparent
        if not is_sampled(position):
            yield
            return
        with start("execute", position, _of_order(order, epoch), kind="consumer") as span:
            self._spans[order.decision.pod_uid] = span
            try:
                yield
            finally:
                del self._spans[order.decision.pod_uid]

    def position(self, order: Order) -> str:
        """What to write onto a claim, so that the node-agent joins; nothing if unsampled."""
        span = self._spans.get(order.decision.pod_uid)
        return span.traceparent if span is not None else ""

    def progress(self, progress: Progress) -> None:
        """A step of an execution, within its span."""
        span = self._spans.get(progress.order.decision.pod_uid)
        if span is None:
            return
        told = {"dray.claim": progress.claim, "dray.reason": progress.reason}
        span.event(progress.step, {name: text for name, text in told.items() if text})
        if progress.step in _FAILED:
            span.fail(f"{progress.reason}: {progress.detail}")


def deriving(pod: SeenPod, template: str, base: str) -> AbstractContextManager[Span]:
    """Around the making of the template that the pod is the first to need."""
    attributes: Attributes = {**_of_pod(pod.pod), "dray.template": template, "dray.base": base}
    return start("template", _position(pod), attributes)


@contextmanager
def publishing(fact: Fact, pod: SeenPod | None, *, first: bool) -> Iterator[str]:
    """Around the publication of a fact about a pod: the ``traceparent`` to send with it.

    The ``first`` fact about a pod's claim is a span: from here on the allocator can know it.
    """
    if pod is None or not is_sampled(_position(pod)):
        yield ""
        return
    if not first or not isinstance(fact, ClaimObserved):
        yield _position(pod)
        return
    attributes: Attributes = {
        **_of_pod(pod.pod),
        "dray.claim": fact.claim.name,
        "messaging.system": "nats",
        "messaging.operation.type": "send",
        "messaging.operation.name": "publish",
        "messaging.destination.name": subject_of(fact),
    }
    with start("claim", _position(pod), attributes, kind="producer") as span:
        yield span.traceparent


@contextmanager
def taking_back(
    what: Literal["withdraw", "void"],
    claim: SeenClaim,
    pod: SeenPod | None,
    *,
    attempt: int,
    reason: str,
) -> Iterator[None]:
    """Around the taking back of an attempt: part of the pod's trace, and linked to the
    execution that had marked the claim, if one had."""
    position = _position(pod) if pod is not None else ""
    if not is_sampled(position):
        yield
        return
    annotations = claim.object["metadata"].get("annotations") or {}
    marked = str(annotations.get(CLAIM_TRACEPARENT, ""))
    attributes: Attributes = {
        **_of_pod(pod.pod if pod is not None else None),
        "dray.claim": claim.claim.name,
        "dray.attempt": attempt,
        "dray.reason": reason,
    }
    with start(what, position, attributes, links=[marked] if is_sampled(marked) else ()):
        yield


def _position(pod: SeenPod) -> str:
    return pod.pod.traceparent if pod.pod is not None else ""


def _of_pod(pod: Pod | None) -> Attributes:
    if pod is None:
        return {}
    return {"k8s.namespace.name": pod.namespace, "k8s.pod.name": pod.name}


def _of_order(order: Order, epoch: int) -> Attributes:
    decision = order.decision
    return {
        "k8s.namespace.name": decision.namespace,
        "k8s.pod.name": decision.name,
        "k8s.node.name": decision.node,
        "dray.attempt": order.attempt,
        "dray.binder": decision.binder,
        "messaging.system": "nats",
        "messaging.operation.type": "process",
        "messaging.operation.name": "execute",
        "messaging.destination.name": log_subject(order.domain, epoch),
    }
