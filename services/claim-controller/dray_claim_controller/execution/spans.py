"""Spans of executions in the traces of their pods."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dray.messages.decisions import log_subject
from dray.telemetry import Span, is_sampled, start
from dray_claim_controller.execution.decisions.executions import Execution
from dray_claim_controller.execution.progress import Progress
from dray_claim_controller.tracing import Attributes

_FAILED: Final = ("failed", "stopped")


class ExecutionSpans:
    """The spans of what is being carried out, one per pod."""

    def __init__(self) -> None:
        self._spans: dict[str, Span] = {}

    @contextmanager
    def carrying_out(self, execution: Execution, epoch: int) -> Iterator[None]:
        """A span around an execution."""
        position = execution.traceparent or execution.decision.traceparent
        if not is_sampled(position):
            yield
            return
        with start("execute", position, _of_order(execution, epoch), kind="consumer") as span:
            self._spans[execution.decision.pod_uid] = span
            try:
                yield
            finally:
                del self._spans[execution.decision.pod_uid]

    def position(self, execution: Execution) -> str:
        """The trace position to write to a claim, so that the node-agent joins the trace; empty if
        the pod is not sampled."""
        span = self._spans.get(execution.decision.pod_uid)
        return span.traceparent if span is not None else ""

    def progress(self, progress: Progress) -> None:
        """A step of an execution, within its span."""
        span = self._spans.get(progress.execution.decision.pod_uid)
        if span is None:
            return
        attributes = {"dray.claim": progress.claim, "dray.reason": progress.reason}
        span.event(progress.step, {name: text for name, text in attributes.items() if text})
        if progress.step in _FAILED:
            span.fail(f"{progress.reason}: {progress.detail}")


def _of_order(execution: Execution, epoch: int) -> Attributes:
    decision = execution.decision
    return {
        "k8s.namespace.name": decision.namespace,
        "k8s.pod.name": decision.name,
        "k8s.node.name": decision.node,
        "dray.attempt": execution.attempt,
        "dray.binder": decision.binder,
        "messaging.system": "nats",
        "messaging.operation.type": "process",
        "messaging.operation.name": "execute",
        "messaging.destination.name": log_subject(execution.domain, epoch),
    }
