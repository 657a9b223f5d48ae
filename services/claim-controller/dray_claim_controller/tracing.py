"""The claim-controller's spans in pods' traces: template, claim, execution, rollback.

Only sampled pods cost anything. Attributes are named by OpenTelemetry's conventions for Kubernetes
and messaging if these define a name, else ``dray.…``.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Literal, TypeGuard

from dray.api.names import TRACEPARENT as CLAIM_TRACEPARENT
from dray.api.pods import Pod
from dray.messages.base import subject_of
from dray.messages.facts import ClaimObserved, Fact
from dray.telemetry import Span, is_sampled, start
from dray_claim_controller.cache.cached_objects import CachedPod, CachedResourceClaim

TRACEPARENT: Final = "traceparent"
"""The header of a record with the decision's position in the trace."""
MESSAGE_ID: Final = "ce-id"
"""The header with a message's id, for the messages that it causes."""
Attributes = dict[str, str | int | float | bool]


def deriving(
    position: str, template: str, base: str, attributes: Mapping[str, str]
) -> AbstractContextManager[Span]:
    """A span for the creation of a template that a pod is the first to need; ``position`` is the
    pod's traceparent."""
    named = {**attributes, "dray.template": template, "dray.base": base}
    return start("template", position, named)


def deriving_for(pod: CachedPod, template: str, base: str) -> AbstractContextManager[Span]:
    """The same for a pod that exists."""
    return deriving(_position(pod), template, base, _of_pod(pod.pod))


def is_traced(pod: CachedPod | None) -> TypeGuard[CachedPod]:
    """Whether a pod is there, and its trace was sampled."""
    return pod is not None and is_sampled(_position(pod))


@contextmanager
def publishing(fact: Fact, pod: CachedPod, *, first: bool) -> Iterator[str]:
    """A context for the publication of a fact about a traced pod; gives the ``traceparent`` to send
    with it.

    The ``first`` fact about a pod's claim is a span: from here on the allocator can know it.
    """
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
def rollback_span(
    what: Literal["withdraw", "void"],
    claim: CachedResourceClaim,
    pod: CachedPod | None,
    *,
    attempt: int,
    reason: str,
) -> Iterator[None]:
    """A span around the rollback of an attempt: part of the pod's trace, and linked to the
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


def _position(pod: CachedPod) -> str:
    return pod.pod.traceparent if pod.pod is not None else ""


def _of_pod(pod: Pod | None) -> dict[str, str]:
    if pod is None:
        return {}
    return {"k8s.namespace.name": pod.namespace, "k8s.pod.name": pod.name}
