"""What is written about groups and their pods, and the recorded rules. Pure."""

from typing import Any

import msgspec

from dray.api.groups import DEFAULT_QUEUE, KUBERNETES, QUEUE_NAME, VOLCANO
from dray.api.names import (
    GANG_ENABLED,
    GANG_LOSS_POLICY,
    GANG_MIN_MEMBERS,
    GANG_TIMEOUT,
    OWNER_DRAY,
)
from dray.api.pods import GroupKey, Pod
from dray.kube.convert_groups import is_owned
from dray.kube.ports import JOB_SETS, JOBS, POD_GROUPS, QUEUES, Object, Resource
from dray_claim_controller.cache.cached_objects import CachedPod
from dray_claim_controller.cache.groups import (
    counted,
    group_of,
    has_devices,
    has_ended,
    has_started,
    members,
    needs_devices,
    runs,
)
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import RecordedRule
from dray_claim_controller.facts.groups import group_fact
from dray_claim_controller.groups.decisions.status import (
    has_run,
    native_condition,
    native_not_honored,
    observe,
    queue_status,
    volcano_status,
)


class GroupStatus(
    RecordedRule[dict[str, Any] | None], frozen=True, kw_only=True, tag="group-status"
):
    """What to write into a PodGroup's status; None if nothing changed. For a Volcano group, this is
    the whole status, for a native group only the conditions."""

    group: GroupKey
    waiting: str
    """Why its pods wait, from the decision log."""
    now_unix_s: float

    def answer(self, cache: ObjectCache) -> dict[str, Any] | None:
        obj, group = cache.group(self.group), group_of(cache, self.group)
        if obj is None or group is None:
            return None
        fact = group_fact(cache, self.group)
        blocked = "" if fact is None else fact.group.blocked
        state = observe(cache, group, waiting=self.waiting, blocked=blocked)
        if self.group.api == VOLCANO:
            status = volcano_status(state, obj, self.now_unix_s)
            return None if status == _known(obj, status) else status
        if any(pod.binder != OWNER_DRAY for pod in state.pods if pod.pool):
            return None  # kube-scheduler writes the status of groups that it binds.
        made = (
            native_condition(state, obj, self.now_unix_s),
            native_not_honored(state, obj, self.now_unix_s),
        )
        found = {one["type"]: one for one in made if one is not None}
        if not found:
            return None
        others = (obj.get("status") or {}).get("conditions") or ()
        kept = [one for one in others if one["type"] not in found]
        return {"conditions": [*kept, *found.values()]}

    def polled(self) -> str:
        return f"group-status/{self.group.api}/{self.group}"


def _known(obj: Object, status: dict[str, Any]) -> dict[str, Any]:
    """The values that the object has in the same fields; absent counts are 0."""
    before = obj.get("status") or {}
    empty = {"phase": "", "state": "", "conditions": [], "allocated": {"pods": "0"}}
    return {name: before.get(name) or empty.get(name, 0) for name in status}


class GroupActions(msgspec.Struct, frozen=True, kw_only=True):
    """What is due for the pods of a group, by UID."""

    ungate: tuple[str, ...] = ()
    """Pods whose gates are removed: they need no devices, or their group has started."""
    evict: tuple[str, ...] = ()
    """Started pods of a group that ends: a gate that was removed can't be put back."""
    roll_back: tuple[str, ...] = msgspec.field(default=(), name="take_back")
    """Pods with devices of a group that ends."""
    is_below: bool = False
    """Whether some members have devices, but too few members run."""


class DueForGroup(RecordedRule[GroupActions], frozen=True, kw_only=True, tag="due-for-group"):
    """What is due for a group's pods."""

    group: GroupKey
    below_s: float
    """For how long too few members have run."""
    timeout_s: float
    """How long that may last, unless the group says otherwise."""
    grace_s: float
    """How long it may last after the group has run."""
    executing: tuple[str, ...] = ()
    """UIDs of its pods that are being executed; sorted."""

    def answer(self, cache: ObjectCache) -> GroupActions:
        obj, group = cache.group(self.group), group_of(cache, self.group)
        if obj is None or group is None:
            return GroupActions()
        pods = [pod for pod in members(cache, self.group) if not has_ended(pod)]
        started = counted(cache, group, lambda pod: has_started(cache, pod) or _rides(cache, pod))
        may_ungate = not group.is_gang or started.is_met
        ungate = tuple(pod.uid for pod in pods if may_ungate and _waits(cache, pod))
        was_running = has_run(obj)
        holding = [pod for pod in pods if has_devices(cache, pod) or (was_running and pod.node)]
        if not group.is_gang or not holding or counted(cache, group, runs).is_met:
            return GroupActions(ungate=ungate)
        limit_s = self.grace_s if was_running else group.timeout_s or self.timeout_s
        if self.below_s < limit_s or (was_running and not group.ends_below_minimum):
            return GroupActions(ungate=ungate, is_below=True)
        ended = {pod.uid: None for pod in pods if has_started(cache, pod)}
        return GroupActions(
            evict=tuple(ended),
            roll_back=tuple(
                pod.uid for pod in holding if pod.uid not in ended and pod.uid not in self.executing
            ),
            is_below=True,
        )

    def polled(self) -> str:
        return f"due-for-group/{self.group.api}/{self.group}"


def _rides(cache: ObjectCache, pod: Pod) -> bool:
    """Whether a member starts with its group, and needs no devices."""
    return not has_ended(pod) and not pod.other_gates and not needs_devices(cache, pod)


def _waits(cache: ObjectCache, pod: Pod) -> bool:
    """Whether the gate of a pod is lifted when its group has started: dray gives the pod no
    devices, or it lacks them in a native group. Such a group is one entry in kube-scheduler's
    queue, and a single gate would hold it back."""
    if not pod.gated or pod.other_gates:
        return False
    if not needs_devices(cache, pod):
        return True
    is_native = pod.member is not None and pod.member.group.api == KUBERNETES
    return is_native and not has_devices(cache, pod)


class MissingGroups(
    RecordedRule[tuple[tuple[GroupKey, str], ...]], frozen=True, kw_only=True, tag="missing-groups"
):
    """Groups to be created for the owners of pods, each with the UID of one of the pods."""

    def answer(self, cache: ObjectCache) -> tuple[tuple[GroupKey, str], ...]:
        found: dict[GroupKey, str] = {}
        for key in cache.group_members.groups():
            if is_owned(key) and cache.group(key) is None:
                asking = (one for one in cache.members_of(key) if _asks_for_group(one))
                for cached in asking:
                    found[key] = cached.uid
                    break
        return tuple(found.items())

    def polled(self) -> str:
        return "missing-groups"


def _asks_for_group(cached: CachedPod) -> bool:
    annotations = cached.object["metadata"].get("annotations") or {}
    is_alive = cached.pod is not None and not has_ended(cached.pod)
    return is_alive and annotations.get(GANG_ENABLED) == "true"


def lacks_pods_of_owner(cache: ObjectCache, key: GroupKey) -> CachedPod | None:
    """A pod of a group that has fewer pods than its minimum, if the pods' owner determines the
    minimum: the owner may have been scaled down. None: there is no such pod."""
    group = group_of(cache, key) if is_owned(key) else None
    if group is None or counted(cache, group, _exists).members >= group.minimum:
        return None
    asking = (one for one in cache.members_of(key) if _asks_for_group(one))
    return next((one for one in asking if not _states_minimum(one.object)), None)


def _exists(pod: Pod) -> bool:
    return pod.phase == "Succeeded" or not has_ended(pod)


def _states_minimum(pod: Object) -> bool:
    return bool((pod["metadata"].get("annotations") or {}).get(GANG_MIN_MEMBERS))


def controller_of(obj: Object) -> Object | None:
    """The reference to the controller of an object."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((one for one in references if one.get("controller")), None)


def owner_with_pod_count(reference: Object) -> Resource | None:
    """The kind of an owner that can be asked how many pods it has; None for all other kinds, also
    for those of the same name in another API group."""
    group = str(reference.get("apiVersion") or "").rpartition("/")[0]
    named = (group, reference.get("kind"))
    return next((one for one in (JOBS, JOB_SETS) if (one.group, one.kind) == named), None)


def owned_group(pod: Object, key: GroupKey, owner: Object) -> Object:
    """The PodGroup for the pods of an owner. ``owner``: the object, or a reference to it."""
    annotations = pod["metadata"].get("annotations") or {}
    least = annotations.get(GANG_MIN_MEMBERS) or pods_of(owner)
    spec: dict[str, Any] = {"minMember": int(least)}
    if class_name := pod["spec"].get("priorityClassName"):
        spec["priorityClassName"] = class_name
    if queue := annotations.get(QUEUE_NAME):
        spec["queue"] = queue
    known = owner.get("metadata") or owner
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "annotations": {
                name: annotations[name]
                for name in (GANG_TIMEOUT, GANG_LOSS_POLICY)
                if name in annotations
            },
            "ownerReferences": [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": known["name"],
                    "uid": known["uid"],
                }
            ],
        },
        "spec": spec,
    }


def pods_of(owner: Object) -> int:
    """How many pods of an owner run at the same time, according to its spec; 1 if it does not
    say."""
    spec = owner.get("spec") or {}
    if "replicatedJobs" in spec:
        return sum(
            int(job.get("replicas", 1)) * _parallelism((job.get("template") or {}).get("spec"))
            for job in spec["replicatedJobs"]
        )
    return _parallelism(spec)


def _parallelism(job: Any) -> int:
    spec = job or {}
    parallelism = spec.get("parallelism")
    pods = 1 if parallelism is None else int(parallelism)
    completions = spec.get("completions")
    return pods if completions is None else min(pods, int(completions))


def default_queue() -> Object:
    """The queue of groups that name none."""
    return {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": {"name": DEFAULT_QUEUE},
        "spec": {"weight": 1, "reclaimable": True},
    }


class QueueStatuses(
    RecordedRule[dict[str, dict[str, Any]]], frozen=True, kw_only=True, tag="queue-statuses"
):
    """What to write into the status of Queues, by name; Queues without a change are left out. A
    missing default queue has an empty status here: it is to be created."""

    acts_for_volcano: bool
    """Whether Volcano is absent, so that only dray writes them."""

    def answer(self, cache: ObjectCache) -> dict[str, dict[str, Any]]:
        queues = cache.plain[QUEUES.plural]
        counts = cache.queue_counts()
        phases, pods = counts.phases, counts.running
        found: dict[str, dict[str, Any]] = {}
        if DEFAULT_QUEUE not in queues and (self.acts_for_volcano or DEFAULT_QUEUE in phases):
            found[DEFAULT_QUEUE] = {}
        if self.acts_for_volcano:
            for name, obj in queues.items():
                status = queue_status(obj, phases.get(name, {}), pods.get(name, 0))
                if status != _known(obj, status):
                    found[name] = status
        return found

    def polled(self) -> str:
        return "queue-statuses"
