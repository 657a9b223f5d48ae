"""A cluster of pure decisions: webhook, facts, allocator, and the rules of groups.

Objects go in as the API server would have them. What services write comes out of their decisions;
this module applies it, as the executor, the kubelet and kube-scheduler would.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jsonpatch
from msgspec.structs import replace
from tests.scenarios import objects
from tests.scenarios.objects import NAMESPACE, Scenario
from tests.unit.allocator.conftest import START_UNIX_S, World, card, slice_of
from tests.unit.webhook.conftest import Cluster, request_for

from dray.api.devices import Device
from dray.api.groups import KUBERNETES, VOLCANO, GroupQueue
from dray.api.names import (
    ALLOCATION_GATE,
    DECISION,
    DRAY_SCHEDULER,
    GPU_RESOURCE,
    SHAPE,
    VOID,
    VOLCANO_SCHEDULER,
)
from dray.api.pods import GroupKey, accounting_claim
from dray.kube.convert import status_to, time_to
from dray.kube.convert_claims import Consumer
from dray.kube.convert_groups import pod_group_from
from dray.kube.ports import (
    CLAIMS,
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    PODS,
    QUEUES,
    Changed,
    Deleted,
    Object,
    Resource,
)
from dray.messages.decisions import AnyRecord, Checkpoint, PodDecision
from dray.messages.facts import (
    ClaimObserved,
    GroupObserved,
    PodObserved,
    QueueObserved,
    SliceObserved,
)
from dray.messages.rpc import LookupReply
from dray.reasons import in_words
from dray_allocator.core.handle import handle
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import FactSeen, RecordSeen
from dray_allocator.values.options import AllocatorOptions
from dray_claim_controller.accounting_claims.decisions import AccountingClaim
from dray_claim_controller.cache.groups import group_of_claim, may_start
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.facts.build import NodeHistory, fact_of
from dray_claim_controller.groups.decisions.rules import (
    DueForGroup,
    GroupStatus,
    MissingGroups,
    controller_of,
    owned_group,
)
from dray_webhook.decisions.pods import admit_pod
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import AdmissionAnswer
from dray_webhook.decisions.volcano import validate_group

POOLS = ("pool", "other")
_FEW = 64
"""In a step with at most this number of pods, decisions follow each pod, not only all of them."""
_FACTS = ("claim", "pod", "group")


def _card(name: str) -> Device:
    """A card with the attributes that the webhook's selectors read."""
    made = card(name)
    return replace(made, attributes=made.attributes | {"phase": "Running", "used_by": ""})


class PureCluster:
    """Objects, and the services that decide about them, without I/O."""

    def __init__(self, scenario: Scenario) -> None:
        self._shared = scenario.shared
        self._options = scenario.options or {}
        self.cache = ObjectCache()
        self.objects: dict[tuple[str, str], Object] = {}
        """By plural and name."""
        self.refusals: dict[str, str] = {}
        """Why objects were refused at admission, by name."""
        self.evicted: list[str] = []
        self.rolled_back: list[str] = []
        self._refused_nodes: set[str] = set()
        self._facts: dict[Any, Any] = {}
        self._below_s: dict[GroupKey, float] = {}
        self._revision = 100
        self._bound: set[str] = set()
        self.webhook = Cluster()
        self.webhook.rules = Installation(
            "dray-system",
            scheduler_names=(DRAY_SCHEDULER, VOLCANO_SCHEDULER),
            gpu_resources=(GPU_RESOURCE,),
        )
        for pool in POOLS:
            self.webhook.pool(pool, dedicated=not scenario.shared)
        self.webhook.pool(POOLS[0], default=scenario.default_pool)
        options = AllocatorOptions(writer="one", **self._options)
        self.allocator = World(options, POOLS).open(scenario.placement)
        for name, cards in scenario.nodes.items():
            made = slice_of(name, [_card(f"{name}-gpu{at}") for at in range(cards)])
            self.allocator.see(SliceObserved(revision=self.allocator.next(), slice=made))
            self.allocator.node(self.allocator.a_node(name, POOLS[0], pods=512))
        self._templates: dict[str, Object] = {}
        self._owners: dict[str, Object] = {}
        """Controllers of pods, by UID."""
        self.do({"queue": {"name": "default"}})

    def do(self, step: Mapping[str, Any]) -> None:
        """Do what a step says, but for ``expect``; then everything that follows from it."""
        verb, what = next(iter(step.items()))
        match verb:
            case "queue":
                self._queue(objects.queue(what))
            case "group":
                self._group(objects.group(what))
            case "native":
                self._put(NATIVE_POD_GROUPS, objects.native(what))
                self._claims_of_group(what["name"])
            case "claim-template":
                self._templates[what["name"]] = objects.claim_template(what)
            case "job":
                self._owners[what["uid"]] = objects.job(what)
            case "pods":
                for pod in objects.pods(what, POOLS[0]):
                    self._pod(pod, what.get("devices"))
                    if what.get("count", 1) <= _FEW:
                        self._settle()
            case "change":
                self._change(what)
            case "lift":
                for name in what:
                    spec = self.objects["pods", name]["spec"]
                    own = [{"name": ALLOCATION_GATE}]
                    spec["schedulingGates"] = [one for one in spec["schedulingGates"] if one in own]
                    self._pod_again(name)
            case "delete":
                for name in what:
                    self._delete_pod(name)
            case "end":
                for name, phase in what.items():
                    self._pod_again(name, phase)
            case "refuse":
                self._refused_nodes.update(what)
            case "after":
                self._after(float(what))
            case _:
                raise ValueError(f"unknown step {verb}")
        self._settle()

    def replace_allocator(self, *, trimmed: bool = False) -> None:
        """The allocator is gone; another replica reads facts and logs, and serves. ``trimmed``: it
        reads the logs from their last checkpoint on."""
        world = self.allocator
        world.state = AllocatorState(world.state.options)
        for sequence, fact in enumerate(world.facts, start=1):
            handle(world.state, FactSeen(sequence, fact))
        for pool, log in world.logs.items():
            start = last_checkpoint(log) if trimmed else 1
            for sequence, record in enumerate(log[start - 1 :], start=start):
                handle(world.state, RecordSeen(pool, 1, sequence, record))
        world.serve()
        world.tick()
        self._settle()

    def running(self) -> list[str]:
        """Pods that have a node and have not ended; sorted."""
        return sorted(
            name
            for (plural, name), obj in self.objects.items()
            if plural == "pods"
            and obj["spec"].get("nodeName")
            and obj["status"]["phase"] not in ("Succeeded", "Failed")
        )

    def nodes(self) -> dict[str, list[str]]:
        """The pods of each node that has some."""
        found: dict[str, list[str]] = {}
        for name in self.running():
            node = self.objects["pods", name]["spec"]["nodeName"]
            found.setdefault(node, []).append(name)
        return found

    def holds(self, prefix: str) -> int:
        """How many devices the claims of these pods hold."""
        return sum(
            len(obj["status"]["allocation"]["devices"]["results"])
            for (plural, name), obj in self.objects.items()
            if plural == CLAIMS.plural
            and name.startswith(prefix)
            and (obj.get("status") or {}).get("allocation")
        )

    def consumers(self, prefix: str) -> list[str]:
        """The kinds of those for whom claims with such names are reserved; sorted."""
        return sorted(
            one["resource"]
            for (plural, name), obj in self.objects.items()
            if plural == CLAIMS.plural and name.startswith(prefix)
            for one in (obj.get("status") or {}).get("reservedFor") or ()
        )

    def status(self, name: str) -> dict[str, Any]:
        """The status of a PodGroup."""
        for resource in (POD_GROUPS, NATIVE_POD_GROUPS):
            if (resource.plural, name) in self.objects:
                return self.objects[resource.plural, name].get("status") or {}
        return {}

    def why(self, name: str) -> str:
        """Why a pod waits."""
        waits = self.allocator.waits(self._uid(PODS, name))
        return in_words(waits[-1].reasons) if waits else ""

    def decisions(self) -> list[list[str]]:
        """The pods that were decided together, by name, in the order of decisions."""
        found: dict[str, list[str]] = {}
        for one in self.allocator.decisions().values():
            key = one.pod_uid if one.group is None else one.group.id
            found.setdefault(key, []).append(one.name)
        return [sorted(names) for names in found.values()]

    def _queue(self, obj: Object) -> None:
        if self._is_refused(obj, "Queue"):
            return
        self._put(QUEUES, obj)
        name, spec = obj["metadata"]["name"], obj["spec"]
        queue = GroupQueue(name, state=obj["status"]["state"], parent=spec.get("parent", ""))
        self.webhook.view.apply(QueueObserved(revision=self._revision, queue=queue))

    def _group(self, obj: Object) -> None:
        if not self._is_refused(obj, "PodGroup"):
            self._put(POD_GROUPS, obj)

    def _is_refused(self, obj: Object, kind: str) -> bool:
        review = {"group": "scheduling.volcano.sh", "version": "v1beta1", "kind": kind}
        request = request_for(obj, kind=review)
        view = self.webhook.view
        answer = validate_group(request, view, self.webhook.rules)
        if answer.unresolved:
            view = view.with_answers(dict.fromkeys(answer.unresolved, LookupReply()))
            answer = validate_group(request, view, self.webhook.rules)
        if not answer.allowed:
            self.refusals[obj["metadata"]["name"]] = answer.message
        return not answer.allowed

    def _pod(self, pod: Object, devices: Object | None) -> None:
        """Admit a pod; ``devices`` replace what its claim asks for."""
        name = pod["metadata"]["name"]
        answer = self._admit(pod)
        if not answer.allowed:
            self.refusals[name] = answer.message
            return
        pod = jsonpatch.apply_patch(pod, list(answer.patch))
        pod["status"] = {"phase": "Pending"}
        shape = pod["metadata"]["annotations"].get(SHAPE)
        is_referred_to = bool(pod["spec"].get("resourceClaims"))
        if shape and is_referred_to:
            claim = f"{name}-gpu"
            group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
            shared = {one["name"] for one in (self._native(group).get("resourceClaims") or ())}
            pod["status"]["resourceClaimStatuses"] = [
                {
                    "name": one["name"],
                    "resourceClaimName": f"{group}-{one['name']}"
                    if one["name"] in shared
                    else claim,
                }
                for one in pod["spec"]["resourceClaims"]
            ]
        self._put(PODS, pod)
        if shape and not is_referred_to:
            claim_made = AccountingClaim(pod_uid=self._uid(PODS, name)).answer(self.cache)
            assert isinstance(claim_made, dict)
            self._put(CLAIMS, claim_made)
        elif shape:
            template = json.loads(shape)
            spec = template["spec"] if devices is None else {"devices": devices}
            owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "controller": True}
            owner["uid"] = self._uid(PODS, name)
            metadata = {**template["metadata"], "name": claim, "namespace": NAMESPACE}
            metadata["ownerReferences"] = [owner]
            self._put(CLAIMS, {"metadata": metadata, "spec": spec})

    def _admit(self, pod: Object) -> AdmissionAnswer:
        """The webhook's answer, after it has looked the pod's PodGroup up."""
        webhook = self.webhook
        answer = webhook.admit(pod)
        if not answer.unresolved:
            return answer
        replies = {}
        for one in answer.unresolved:
            group = self.objects.get((POD_GROUPS.plural, one.name)) if one.kind == "group" else None
            resources = pod_group_from(group).min_resources if group is not None else ()
            replies[one] = LookupReply(group_resources=tuple(resources))
        view = webhook.view.with_answers(replies)
        return admit_pod(request_for(pod), view, webhook.rules, webhook.ids)

    def _native(self, name: str | None) -> Object:
        """The spec of a native group; empty: there is none."""
        group = self.objects.get((NATIVE_POD_GROUPS.plural, name or ""))
        return {} if group is None else dict(group["spec"])

    def _claims_of_group(self, name: str) -> None:
        """Kubernetes makes the claims of a PodGroup."""
        group = self.objects[NATIVE_POD_GROUPS.plural, name]
        statuses = []
        for entry in group["spec"].get("resourceClaims") or ():
            template = self._templates[entry["resourceClaimTemplateName"]]
            owner = {"apiVersion": NATIVE_POD_GROUPS.api_version, "kind": "PodGroup"}
            owner |= {"name": name, "uid": group["metadata"]["uid"], "controller": True}
            claim = f"{name}-{entry['name']}"
            metadata = {"name": claim, "namespace": NAMESPACE, "ownerReferences": [owner]}
            self._put(CLAIMS, {"metadata": metadata, "spec": template["spec"]["spec"]})
            statuses.append({"name": entry["name"], "resourceClaimName": claim})
        if statuses:
            self._put(NATIVE_POD_GROUPS, group | {"status": {"resourceClaimStatuses": statuses}})

    def _pod_again(self, name: str, phase: str = "") -> None:
        pod = self.objects["pods", name]
        status = pod["status"] | ({"phase": phase} if phase else {})
        self._put(PODS, pod | {"status": status})
        if phase in ("Succeeded", "Failed"):
            self._delete_claim(self._claim_of(name))

    def _delete_pod(self, name: str) -> None:
        claim = self._claim_of(name)
        self._remove(PODS, name)
        self._delete_claim(claim)

    def _claim_of(self, name: str) -> str:
        """The name of a pod's claim, or of the one that accounts for it."""
        accounting = accounting_claim(self._uid(PODS, name))
        return accounting if (CLAIMS.plural, accounting) in self.objects else f"{name}-gpu"

    def _delete_claim(self, name: str) -> None:
        """Kubernetes deletes the claim of a pod that has ended."""
        if (CLAIMS.plural, name) in self.objects:
            self._remove(CLAIMS, name)

    def _roll_back(self, name: str) -> None:
        """Make the decision on a pod void, as the rollback does."""
        claim = self.objects[CLAIMS.plural, self._claim_of(name)]
        annotations = claim["metadata"]["annotations"]
        voided = {"annotations": annotations | {VOID: annotations[DECISION]}}
        self._put(CLAIMS, claim | {"status": {}, "metadata": claim["metadata"] | voided})

    def _change(self, what: Mapping[str, Any]) -> None:
        """Merge a spec into a PodGroup's, set a Queue's state, or delete the group."""
        name = what["name"]
        if "state" in what:
            queue = self.objects[QUEUES.plural, name]
            self._queue(queue | {"status": {"state": what["state"]}})
            return
        resource = next(
            one
            for one in (POD_GROUPS, NATIVE_POD_GROUPS, QUEUES)
            if (one.plural, name) in self.objects
        )
        if what.get("deleted"):
            claims = self._native(name).get("resourceClaims") or ()
            self._remove(resource, name)
            for entry in claims:
                self._remove(CLAIMS, f"{name}-{entry['name']}")
            return
        group = self.objects[resource.plural, name]
        self._put(resource, group | {"spec": group["spec"] | what["spec"]})

    def _put(self, resource: Resource, obj: Object) -> None:
        self._revision += 1
        metadata = obj["metadata"]
        name = metadata["name"]
        uid = metadata.get("uid") or self._uid(resource, name)
        created = metadata.get("creationTimestamp") or time_to(START_UNIX_S + self._revision)
        metadata = metadata | {
            "uid": uid,
            "resourceVersion": str(self._revision),
            "creationTimestamp": created,
        }
        made = {"apiVersion": resource.api_version, **obj, "metadata": metadata}
        self.objects[resource.plural, name] = made
        self.cache.apply(resource, Changed(made))

    def _remove(self, resource: Resource, name: str) -> None:
        self._revision += 1
        obj = self.objects.pop((resource.plural, name))
        metadata = obj["metadata"] | {"resourceVersion": str(self._revision)}
        self.cache.apply(resource, Deleted(obj | {"metadata": metadata}))

    def _uid(self, resource: Resource, name: str) -> str:
        known = self.objects.get((resource.plural, name))
        if known is not None:
            return str(known["metadata"]["uid"])
        return f"{resource.kind}-{name}-{self._revision}".lower()

    def _settle(self) -> None:
        """Facts, decisions, what follows from them, until nothing changes any more."""
        for _ in range(100):
            before = self._revision
            self._publish()
            self._execute()
            self._create_groups()
            for key in self._groups():
                self._act(key, 0.0)
            if self._revision == before and not self.cache.dirty:
                break
        else:
            raise AssertionError("the cluster does not come to rest")
        for key in self._groups():
            self._write_status(key)
        self._publish()

    def _publish(self) -> None:
        for key, revision in self.cache.take_dirty():
            if key.kind not in _FACTS:
                continue
            fact = fact_of(self.cache, key, NodeHistory())
            if fact is None and (known := self._facts.pop(key, None)) is not None:
                self.allocator.see(replace(known, revision=revision, deleted=True))
            elif fact is not None and fact != self._facts.get(key):
                assert isinstance(fact, ClaimObserved | PodObserved | GroupObserved)
                self._facts[key] = fact
                self.allocator.see(fact)

    def _execute(self) -> None:
        decided = [one for one in self.allocator.decisions().values() if self._is_open(one)]
        for one in decided:
            for made in one.claims:
                claim = self.objects[CLAIMS.plural, made.name]
                metadata = claim["metadata"]
                written = (metadata.get("annotations") or {}) | {DECISION: str(made.attempt)}
                pod = self.cache.pods[one.pod_uid].pod
                assert pod is not None
                group = group_of_claim(self.cache, pod, made.name)
                consumer = Consumer(one.name, one.pod_uid)
                if group is not None:
                    consumer = Consumer(group.key.name, group.uid, is_group=True)
                status = status_to(made.allocation, reserved_for=[consumer])
                made_claim = claim | {"status": status}
                self._put(CLAIMS, made_claim | {"metadata": metadata | {"annotations": written}})
        groups = dict.fromkeys(one.group.group for one in decided if one.group is not None)
        starting = {group: may_start(self.cache, group) for group in groups}
        for one in decided:
            if one.group is None or starting[one.group.group]:
                self._bind(one.name, one.node)

    def _is_open(self, decision: PodDecision) -> bool:
        pod = self.objects.get(("pods", decision.name))
        if pod is None or pod["metadata"]["uid"] != decision.pod_uid:
            return False
        key = f"{decision.pod_uid}/{decision.claims[0].attempt}"
        is_new = key not in self._bound
        self._bound.add(key)
        return is_new and not pod["spec"].get("nodeName")

    def _bind(self, name: str, node: str) -> None:
        pod, is_refused = self.objects["pods", name], name in self._refused_nodes
        if is_refused and pod["spec"].get("schedulerName") == DRAY_SCHEDULER:
            return
        gates = [
            one
            for one in pod["spec"].get("schedulingGates") or ()
            if one["name"] != ALLOCATION_GATE
        ]
        pod = pod | {"spec": pod["spec"] | {"schedulingGates": gates}}
        if not is_refused:
            pod |= {"spec": pod["spec"] | {"nodeName": node}}
            pod |= {"status": pod["status"] | {"phase": "Running"}}
        self._put(PODS, pod)

    def _groups(self) -> list[GroupKey]:
        return [
            GroupKey(VOLCANO if plural == POD_GROUPS.plural else KUBERNETES, NAMESPACE, name)
            for plural, name in self.objects
            if plural in (POD_GROUPS.plural, NATIVE_POD_GROUPS.plural)
        ]

    def _create_groups(self) -> None:
        """Groups for the owners of pods that ask for one."""
        for key, uid in MissingGroups().answer(self.cache):
            pod = self.objects["pods", self._name(uid)]
            reference = controller_of(pod)
            assert reference is not None
            owner = self._owners.get(reference["uid"], reference)
            self._put(POD_GROUPS, owned_group(pod, key, owner))

    def _act(self, key: GroupKey, below_s: float) -> bool:
        """Do what is due for a group; whether too few of its pods run."""
        due = DueForGroup(group=key, below_s=below_s, timeout_s=300.0, grace_s=60.0)
        actions = due.answer(self.cache)
        for uid in actions.ungate:
            self._bind(self._name(uid), "a-node-of-kube-scheduler")
        for uid in actions.evict:
            self.evicted.append(self._name(uid))
            self._delete_pod(self._name(uid))
        self.rolled_back += self._names(actions.roll_back)
        for name in self._names(actions.roll_back):
            self._roll_back(name)
        return actions.is_below

    def _after(self, seconds: float) -> None:
        """Time passes; groups stay as they are for so long."""
        for key in self._groups():
            self._act(key, seconds)
        self.allocator.tick(seconds)

    def _name(self, uid: str) -> str:
        cached = self.cache.pods[uid]
        assert cached.pod is not None
        return cached.pod.name

    def _names(self, uids: Iterable[str]) -> list[str]:
        return sorted(map(self._name, uids))

    def _write_status(self, key: GroupKey) -> None:
        pods = self.cache.members_of(key)
        waiting = next((text for one in pods if (text := self._why(one.uid))), "")
        rule = GroupStatus(group=key, waiting=waiting, now_unix_s=self.allocator.now_unix_s)
        status = rule.answer(self.cache)
        if status is not None:
            resource = POD_GROUPS if key.api == VOLCANO else NATIVE_POD_GROUPS
            obj = self.objects[resource.plural, key.name]
            self._put(resource, obj | {"status": (obj.get("status") or {}) | status})

    def _why(self, uid: str) -> str:
        waits = self.allocator.waits(uid)
        return in_words(waits[-1].reasons, 900) if waits else ""


def last_checkpoint(log: Sequence[AnyRecord]) -> int:
    """The sequence of the first part of a log's last checkpoint; 1: there is none."""
    found = [at for at, record in enumerate(log, start=1) if _begins_checkpoint(record)]
    return found[-1] if found else 1


def _begins_checkpoint(record: AnyRecord) -> bool:
    return isinstance(record, Checkpoint) and record.part == 1
