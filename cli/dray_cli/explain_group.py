"""``dray explain podgroup/NAME``: what a group of pods waits for, and the state of each pod."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dray.api import names
from dray.api.groups import GroupCount, PodGroup
from dray.api.pods import TERMINAL_PHASES, GroupMember
from dray.kube.convert_groups import group_member, pod_group_from
from dray.kube.convert_pods import claim_names
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    PODS,
    Kube,
    NotFoundError,
    Object,
    Resource,
)
from dray_cli.cluster_names import GROUP_KINDS
from dray_cli.pod_claims import devices_of, is_without_devices
from dray_cli.text import counted

_WHY: Final = (("Unschedulable", "True"), ("PodGroupInitiallyScheduled", "False"))
"""Conditions, with their status, that say why a group has not started."""


@dataclass(frozen=True, slots=True)
class MemberState:
    """The state of one pod of a group."""

    name: str
    task: str
    state: str
    """As a clause, such as ``waits for GPUs``."""
    node: str = ""
    counts_as_running: bool = False
    """Whether it has a node, or has succeeded."""
    reasons: str = ""
    """Why it has no GPUs, as the allocator explains it for this pod."""


@dataclass(frozen=True, slots=True)
class GroupExplanation:
    """What is known about a group, only from Kubernetes objects."""

    obj: Object
    group: PodGroup
    running: GroupCount
    """Members that are bound, or have succeeded."""
    existing: GroupCount
    """Members that have not failed."""
    members: tuple[MemberState, ...]

    @property
    def conditions(self) -> list[Mapping[str, Any]]:
        """The conditions of its status."""
        return list((self.obj.get("status") or {}).get("conditions") or ())

    @property
    def _why(self) -> Mapping[str, Any]:
        """The condition that says why it has not started; empty if none does."""
        found = (one for one in self.conditions if (one["type"], one["status"]) in _WHY)
        return next(found, {})

    @property
    def reasons(self) -> list[str]:
        """Why it has not started, one line each."""
        if not self.members:
            return ["no pod names it yet"]
        return str(self._why.get("message") or "").splitlines()

    @property
    def phase(self) -> str:
        """``status.phase`` of a Volcano group; for Kubernetes' groups, whether it has started."""
        if phase := (self.obj.get("status") or {}).get("phase"):
            return str(phase)
        return "Running" if self.group.is_gang and self.running.is_met else "Pending"

    def lines(self) -> list[str]:
        """The explanation as a person reads it."""
        since = self._why.get("lastTransitionTime")
        head = f"PodGroup {self.group.key} is {self.phase}"
        if reasons := self.reasons:
            head += ": it waits" + (f" since {since}" if since else "") + " because"
        lines = [head, *(f"  {one}" for one in reasons)]
        if self.members:
            lines.append(self._needs())
        states: dict[str, list[str]] = {}
        for member in self.members:
            states.setdefault(member.state, []).append(member.name)
        lines += [f"  {state}: {', '.join(found)}" for state, found in states.items()]
        lines += [
            f"{one['type']}: {one['message']}"
            for one in self.conditions
            if one["type"] in ("NotHonored", "Scheduled") and one.get("message")
        ]
        return lines

    def _needs(self) -> str:
        if not self.group.is_gang:
            return "Its pods start one by one"
        if not self.running.is_met:
            return f"Too few of its pods have started: {self.running.in_words()}"
        return "Enough of its pods have started"

    def as_json(self) -> dict[str, Any]:
        """The explanation as data."""
        return {
            "namespace": self.group.key.namespace,
            "podGroup": self.group.key.name,
            "api": self.group.key.api,
            "phase": self.phase,
            "reasons": self.reasons,
            "waitsSince": self._why.get("lastTransitionTime"),
            "lacksPods": "" if self.existing.is_met else self.existing.in_words(),
            "lacksRunning": "" if self.running.is_met else self.running.in_words(),
            "members": [
                {
                    "pod": one.name,
                    "task": one.task,
                    "state": one.state,
                    "node": one.node,
                    "reasons": one.reasons.splitlines(),
                }
                for one in self.members
            ],
            "conditions": self.conditions,
        }


async def explain_group(
    kube: Kube, namespace: str, name: str, resource: Resource | None = None
) -> GroupExplanation:
    """Read everything that explains a group. ``resource``: its kind; None: the first that has it.

    Raises:
        NotFoundError: there is no such group.
    """
    obj = await _get(kube, namespace, name, GROUP_KINDS if resource is None else (resource,))
    group = pod_group_from(obj)
    pods, claims, requests = [
        (await kube.list(kind, namespace)).objects for kind in (PODS, CLAIMS, BIND_REQUESTS)
    ]
    claim_of = {one["metadata"]["name"]: one for one in claims}
    waits = {one["metadata"]["name"]: one for one in requests}
    running, existing, states = GroupCount(group), GroupCount(group), []
    for pod in sorted(pods, key=lambda one: str(one["metadata"]["name"])):
        member = group_member(pod)
        if member is None or member.group != group.key:
            continue
        state = _state(pod, member, claim_of, waits.get(pod["metadata"]["name"]))
        has_ended = bool(pod["metadata"].get("deletionTimestamp")) or _phase(pod) == "Failed"
        if not has_ended or _phase(pod) == "Succeeded":
            existing.add(member.task, member.labels)
            if state.counts_as_running:
                running.add(member.task, member.labels)
        states.append(state)
    return GroupExplanation(obj, group, running, existing, tuple(states))


async def _get(kube: Kube, namespace: str, name: str, kinds: tuple[Resource, ...]) -> Object:
    for kind in kinds:
        try:
            return {"apiVersion": kind.api_version, **await kube.get(kind, name, namespace)}
        except NotFoundError:
            continue
    raise NotFoundError(
        f"there is no PodGroup {namespace}/{name} in the cluster: is the name right, and the "
        "namespace (-n)?"
    )


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def _state(
    pod: Object, member: GroupMember, claims: Mapping[str, Object], request: Object | None
) -> MemberState:
    metadata, spec = pod["metadata"], pod["spec"]
    name, node, phase = metadata["name"], str(spec.get("nodeName") or ""), _phase(pod)
    found = [claims[one] for one in claim_names(pod).values() if one in claims]
    devices = sum(1 for claim in found for _ in devices_of(claim))
    gpus = counted(devices, "GPU")
    is_allocated = bool(found) and all((one.get("status") or {}).get("allocation") for one in found)
    gates = [one["name"] for one in spec.get("schedulingGates") or ()]
    others = [one for one in gates if one != names.ALLOCATION_GATE]
    asks = names.GPUPOOL in (metadata.get("annotations") or {})
    reasons = ""
    if phase in TERMINAL_PHASES:
        state = "has succeeded" if phase == "Succeeded" else "has failed"
    elif metadata.get("deletionTimestamp"):
        state = "is being deleted"
    elif node:
        state = f"{phase} on {node}" + (f" with {gpus}" if devices else "")
    elif others:
        state = f"is gated by {', '.join(others)}"
    elif is_allocated:
        state = f"has {gpus if devices else 'a place'} and no node yet"
    elif asks and not found:
        state = "has no ResourceClaim yet"
    elif asks or found:
        has_none = bool(found) and all(map(is_without_devices, found))
        state = "waits for room, and asks for no GPUs" if has_none else "waits for GPUs"
        reasons = str(((request or {}).get("status") or {}).get("explanation") or "")
    else:
        state = "starts with the group" if gates else f"waits for {spec.get('schedulerName')}"
    is_running = bool(node) or phase == "Succeeded"
    return MemberState(name, member.task, state, node, is_running, reasons)
