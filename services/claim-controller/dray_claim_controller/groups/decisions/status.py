"""The status of a PodGroup, as Volcano's state machine and Kubernetes define it. Pure.

Sources: ``getPodGroupPhase`` and ``jobStatus`` of Volcano's scheduler, and the conditions of
``scheduling.k8s.io`` (KEP-4671).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from dray.api.groups import GroupCount, PodGroup
from dray.api.names import OWNER_DRAY
from dray.api.pods import TERMINAL_PHASES, Pod
from dray.kube.convert import time_to
from dray.kube.ports import Object
from dray.reasons import name_list
from dray_claim_controller.cache.groups import counted, has_ended, members, runs, would_run
from dray_claim_controller.cache.object_cache import ObjectCache

_PENDING, _INQUEUE, _RUNNING, _UNKNOWN, _COMPLETED = (
    "Pending",
    "Inqueue",
    "Running",
    "Unknown",
    "Completed",
)
_SCHEDULED, _UNSCHEDULABLE, _NOT_HONORED = "Scheduled", "Unschedulable", "NotHonored"
_INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
_READY_REASON: Final = "tasks in gang are ready to be scheduled"
_LONGEST_MESSAGE: Final = 4096


@dataclass(frozen=True, slots=True)
class GroupState:
    """What is observed of a group's members."""

    group: PodGroup
    pods: tuple[Pod, ...]
    running: GroupCount
    """Members that are bound, or have succeeded."""
    is_met: bool
    """Whether ``running`` is enough for the group's minimum."""
    have_devices: bool
    """Whether enough members run or lack nothing but their binding."""
    exist: GroupCount
    """Members that exist, have not failed, and have no gate of another controller."""
    gated: int
    """Members with a gate of another controller."""
    waiting: str = ""
    """Why members wait, as the decision log says; empty: it says nothing."""
    blocked: str = ""
    """Why the group must not be decided."""

    @property
    def phases(self) -> dict[str, int]:
        """The number of pods by phase; pods that are ending are in none."""
        found: dict[str, int] = {}
        for pod in self.pods:
            if not pod.deleting or pod.phase in TERMINAL_PHASES:
                found[pod.phase] = found.get(pod.phase, 0) + 1
        return found


def observe(
    cache: ObjectCache, group: PodGroup, *, waiting: str = "", blocked: str = ""
) -> GroupState:
    """The state of a group's members."""
    running, pods = counted(cache, group, runs), tuple(members(cache, group.key))
    return GroupState(
        group=group,
        pods=pods,
        running=running,
        is_met=running.is_met if group.is_gang else bool(running.members),
        have_devices=counted(cache, group, lambda pod: would_run(cache, pod)).is_met,
        exist=counted(
            cache,
            group,
            lambda pod: runs(pod) or not (has_ended(pod) or pod.other_gates),
        ),
        gated=sum(pod.other_gates and not has_ended(pod) for pod in pods),
        waiting=waiting,
        blocked=blocked,
    )


def volcano_status(state: GroupState, obj: Object, now_unix_s: float) -> dict[str, Any]:
    """``status`` of a Volcano PodGroup."""
    before, phases = obj.get("status") or {}, state.phases
    return {
        "phase": _phase_of(state, before.get("phase") or ""),
        "running": phases.get("Running", 0),
        "pending": phases.get("Pending", 0),
        "succeeded": phases.get("Succeeded", 0),
        "failed": phases.get("Failed", 0),
        "conditions": _volcano_conditions(state, obj, now_unix_s),
    }


def _phase_of(state: GroupState, before: str) -> str:
    """The next phase, as in Volcano's ``getPodGroupPhase``. A group without pods is in the queue as
    soon as nothing blocks it: dray admits groups without quotas."""
    phases = state.phases
    is_unschedulable = not state.is_met and bool(state.pods)
    if phases.get("Running") and is_unschedulable:
        return _UNKNOWN
    completed = phases.get("Succeeded", 0) + phases.get("Failed", 0)
    scheduled = state.running.members + phases.get("Failed", 0)
    if state.pods and scheduled and scheduled >= state.group.minimum:
        return _COMPLETED if scheduled == completed else _RUNNING
    if state.blocked:
        return _PENDING
    return _INQUEUE if before in ("", _PENDING, _INQUEUE) else _PENDING


def _volcano_conditions(state: GroupState, obj: Object, now_unix_s: float) -> list[dict[str, str]]:
    group, found = state.group, []
    if state.pods:
        if state.is_met:
            found.append((_SCHEDULED, "True", _READY_REASON, _binding(state)))
            found.append((_UNSCHEDULABLE, "False", "Scheduled", ""))
        else:
            found.append((_UNSCHEDULABLE, "True", *_why(state)))
    if ignored := _ignored(obj):
        found.append((_NOT_HONORED, "True", "NotImplemented", ignored))
    before = {one.get("type"): one for one in (obj.get("status") or {}).get("conditions") or ()}
    made = {
        kind: _dated(group.uid, kind, status, reason, message, before.get(kind) or {}, now_unix_s)
        for kind, status, reason, message in found
    }
    if _UNSCHEDULABLE in made and _UNSCHEDULABLE not in before and state.is_met:
        del made[_UNSCHEDULABLE]
    if state.running.members and _SCHEDULED in before:
        made.setdefault(_SCHEDULED, before[_SCHEDULED])  # It says that the group has run.
    return list(made.values())


def _why(state: GroupState) -> tuple[str, str]:
    """Reason and message of a group that is not scheduled."""
    if state.blocked:
        return "NotEnoughResources", state.blocked
    lacking = f"not enough pods: {state.exist.in_words()}"
    if state.gated:
        lacking += f"; {state.gated} more are gated by another controller"
    if state.exist.lacking_tasks or state.exist.lacking_subgroups:
        return "NotEnoughPodsOfTask", lacking
    if state.exist.lacks:
        return "NotEnoughTasks", lacking
    if state.group.is_gang and state.have_devices:
        binding = _binding(state) or "if this is still so at the deadline, all are evicted"
        message = f"enough pods have their devices, but only {state.running.in_words()} are bound"
        return "NotEnoughResources", f"{message}; {binding}"
    message = state.waiting or "its pods are being decided"
    return "NotEnoughResources", message[:_LONGEST_MESSAGE]


def _binding(state: GroupState) -> str:
    """How the pods are bound: what users can rely on."""
    binders = {pod.binder for pod in state.pods if pod.pool}
    if not state.group.is_gang or binders <= {OWNER_DRAY}:
        return ""
    return (
        "best effort: kube-scheduler binds the pods of shared nodes one by one, after all have "
        "their devices; if too few of them are bound at the deadline, all are evicted"
    )


def _ignored(obj: Object) -> str:
    """The fields of a PodGroup that dray stores but does not act on."""
    spec = obj.get("spec") or {}
    found = ["spec.networkTopology"] * bool(spec.get("networkTopology"))
    policies: Sequence[Mapping[str, Any]] = spec.get("subGroupPolicy") or ()
    if any(one.get("networkTopology") for one in policies):
        found.append("spec.subGroupPolicy[].networkTopology")
    return _not_acted_on(found)


def _not_acted_on(fields: Sequence[str]) -> str:
    return f"dray stores {name_list(fields)} but does not act on it yet" if fields else ""


_NATIVE_STORED: Final = ("parentCompositePodGroupName", "schedulingConstraints")
_SHARES: Final = (
    "capability",
    "deserved",
    "guarantee",
    "affinity",
    "extendClusters",
    "parent",
    "priority",
    "type",
)
"""Fields of a Queue that dray stores but does not act on."""


def queue_status(obj: Object, phases: Mapping[str, int], pods: int) -> dict[str, Any]:
    """``status`` of a Queue whose groups have these phases and ``pods`` bound pods.

    As with Volcano, a queue that is closing is closed once it has no group left.
    """
    spec, before = obj.get("spec") or {}, obj.get("status") or {}
    counts = ("unknown", "pending", "running", "inqueue", "completed")
    status: dict[str, Any] = {name: phases.get(name, 0) for name in counts}
    state = before.get("state") or "Open"
    status["allocated"] = {"pods": str(pods)}
    status["state"] = "Closed" if state == "Closing" and not any(phases.values()) else state
    ignored = [f"spec.{name}" for name in _SHARES if spec.get(name)]
    if int(spec.get("weight") or 1) != 1:
        ignored.append("spec.weight")
    if (spec.get("dequeueStrategy") or "traverse") != "traverse":
        ignored.append("spec.dequeueStrategy")
    message = _not_acted_on(ignored)
    status["conditions"] = (
        [{"type": _NOT_HONORED, "status": "True", "reason": "NotImplemented", "message": message}]
        if message
        else []
    )
    return status


def _dated(
    uid: str,
    kind: str,
    status: str,
    reason: str,
    message: str,
    before: Mapping[str, Any],
    now_unix_s: float,
) -> dict[str, str]:
    """A condition; its time and transition stay the same as long as its status and reason do."""
    condition = {"type": kind, "status": status, "reason": reason, "message": message}
    if (before.get("status"), before.get("reason")) == (status, reason):
        kept = ("lastTransitionTime", "transitionID")
        return condition | {name: str(before[name]) for name in kept if name in before}
    moment = time_to(now_unix_s)
    transition = uuid5(NAMESPACE_URL, f"{uid}/{kind}/{status}/{reason}/{moment}")
    return condition | {"lastTransitionTime": moment, "transitionID": str(transition)}


def native_condition(state: GroupState, obj: Object, now_unix_s: float) -> dict[str, Any] | None:
    """``PodGroupInitiallyScheduled`` of a native PodGroup; None: it stays as it is. Once it is
    True it stays True."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    found = (one for one in conditions if one["type"] == _INITIALLY_SCHEDULED)
    before: Mapping[str, Any] = next(found, {})
    if before.get("status") == "True" or not state.pods:
        return None
    if state.is_met:
        status, reason, message = "True", "Scheduled", ""
    else:
        status, reason, message = "False", "Unschedulable", _why(state)[1]
    if (before.get("status"), before.get("message", "")) == (status, message):
        return None
    moment = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": _INITIALLY_SCHEDULED,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": moment or time_to(now_unix_s),
        "observedGeneration": int(obj["metadata"].get("generation") or 0),
    }


def native_not_honored(state: GroupState, obj: Object, now_unix_s: float) -> dict[str, Any] | None:
    """``NotHonored`` of a native PodGroup with fields that dray does not act on; None: there are
    none, or the object has the condition already. These fields never change."""
    spec = obj.get("spec") or {}
    message = _not_acted_on([f"spec.{name}" for name in _NATIVE_STORED if spec.get(name)])
    conditions = (obj.get("status") or {}).get("conditions") or ()
    if not message or not state.pods or any(one["type"] == _NOT_HONORED for one in conditions):
        return None
    return {
        "type": _NOT_HONORED,
        "status": "True",
        "reason": "NotImplemented",
        "message": message,
        "lastTransitionTime": time_to(now_unix_s),
        "observedGeneration": int(obj["metadata"].get("generation") or 0),
    }


def has_run(obj: Object) -> bool:
    """Whether the group's minimum has run once, as its status says."""
    status = obj.get("status") or {}
    if status.get("phase") in (_RUNNING, _COMPLETED):
        return True
    return any(
        one.get("type") in (_INITIALLY_SCHEDULED, _SCHEDULED) and one.get("status") == "True"
        for one in status.get("conditions") or ()
    )
