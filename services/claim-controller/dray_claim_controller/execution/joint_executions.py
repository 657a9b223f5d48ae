"""Executions of a group's decision: none binds its pod before all can."""

from collections.abc import Callable
from dataclasses import dataclass, field

from dray_claim_controller.execution.decisions.executions import Execution
from dray_claim_controller.execution.decisions.joint_step import JointStep, Verdict
from dray_claim_controller.execution.decisions.next_step import GO, WAIT, stop_jointly
from dray_claim_controller.informers import Informers


@dataclass(slots=True)
class _Joint:
    """One decision, and its pods that are being executed."""

    size: int
    timeout_s: float
    decided_unix_s: float
    members: dict[str, Execution] = field(default_factory=dict)
    """By pod UID."""
    arrived: dict[str, None] = field(default_factory=dict)
    """UIDs of the pods that have all their devices."""
    verdict: Verdict = WAIT


class JointExecutions:
    """The decisions on groups that are being executed."""

    def __init__(
        self, informers: Informers, now_unix_s: Callable[[], float], wake: Callable[[str], None]
    ) -> None:
        """``wake``: continue with the execution of a pod, by UID, that waits for its group."""
        self._informers = informers
        self._now_unix_s = now_unix_s
        self._wake = wake
        self._joints: dict[str, _Joint] = {}
        """By the decision's id."""

    def __len__(self) -> int:
        return len(self._joints)

    def join(self, execution: Execution) -> None:
        """An execution begins."""
        group = execution.decision.group
        if group is None:
            return
        joint = self._joints.get(group.id)
        if joint is None:
            since = execution.decided_unix_s
            joint = _Joint(
                group.size, group.timeout_s, self._now_unix_s() if since is None else since
            )
            self._joints[group.id] = joint
        joint.members[execution.decision.pod_uid] = execution

    def verdict(self, execution: Execution) -> Verdict:
        """Whether the pod may be bound."""
        group = execution.decision.group
        if group is None:
            return GO
        joint = self._joints.get(group.id)
        return WAIT if joint is None else joint.verdict

    def arrive(self, execution: Execution) -> bool:
        """The pod has all its devices. Returns whether the verdict is known now."""
        joint = self._joint_of(execution)
        if joint is None:
            return False
        joint.arrived[execution.decision.pod_uid] = None
        is_late = self._now_unix_s() - joint.decided_unix_s > joint.timeout_s
        if joint.verdict == WAIT and (len(joint.arrived) >= len(joint.members) or is_late):
            self._decide(joint)
        return joint.verdict != WAIT

    def go(self, execution: Execution) -> None:
        """The pod is bound, or kube-scheduler binds it: all pods of the group had their devices
        then."""
        joint = self._joint_of(execution)
        if joint is not None and joint.verdict == WAIT:
            self._end(joint, GO)

    def fail(self, execution: Execution, why: str) -> None:
        """The pod can't be bound: the others are not bound either, unless their binding has
        begun."""
        joint = self._joint_of(execution)
        if joint is not None and joint.verdict == WAIT:
            decision = execution.decision
            where = f"{decision.namespace}/{decision.name}"
            self._end(joint, stop_jointly(f"pod {where} of its group can't be bound: {why}"))

    def leave(self, execution: Execution) -> None:
        """The execution is over, or replaced."""
        group = execution.decision.group
        joint = self._joints.get(group.id) if group is not None else None
        if group is None or joint is None:
            return
        joint.members.pop(execution.decision.pod_uid, None)
        if not joint.members:
            del self._joints[group.id]

    def deadline_unix_s(self, execution: Execution) -> float:
        """The time at which the pod stops waiting for its group."""
        joint = self._joint_of(execution)
        return 0.0 if joint is None else joint.decided_unix_s + joint.timeout_s

    def _joint_of(self, execution: Execution) -> _Joint | None:
        group = execution.decision.group
        return None if group is None else self._joints.get(group.id)

    def _decide(self, joint: _Joint) -> None:
        verdict = self._informers.evaluate(
            JointStep(
                decisions=tuple(one.decision for one in joint.members.values()),
                size=joint.size,
                timeout_s=joint.timeout_s,
                age_s=self._now_unix_s() - joint.decided_unix_s,
            )
        )
        if verdict != WAIT:
            self._end(joint, verdict)

    def _end(self, joint: _Joint, verdict: Verdict) -> None:
        joint.verdict = verdict
        for pod_uid in joint.members:
            self._wake(pod_uid)
