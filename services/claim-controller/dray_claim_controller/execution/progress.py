"""What executions report, and what they need from other parts."""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from dray_claim_controller.execution.decisions.executions import Execution


@dataclass(frozen=True, slots=True)
class Progress:
    """What an execution did, or its result, for reports."""

    execution: Execution
    step: str
    """``committed``, ``awaiting`` (the devices are not ready), ``bound``, ``ungated``, ``done``,
    ``failed`` (rolled back), ``stopped``."""
    claim: str = ""
    reason: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ExecutorEnvironment:
    """Callbacks of the executor."""

    epoch_of: Callable[[str], int]
    """Current epoch of a domain."""
    keeps_timestamp: Callable[[], bool]
    """Whether the server keeps ``allocationTimestamp``."""
    report: Callable[[Progress], None]
    now_unix_s: Callable[[], float]
    """The time of the facts."""


def log_progress(progress: Progress) -> None:
    """One line per step that changed something; its trace id is the pod's."""
    decision = progress.execution.decision
    fields = {"claim": progress.claim, "reason": progress.reason, "detail": progress.detail}
    structlog.get_logger().info(
        progress.step,
        pod=f"{decision.namespace}/{decision.name}",
        node=decision.node,
        attempt=progress.execution.attempt,
        **{name: text for name, text in fields.items() if text},
    )
