"""Invariants of Kubernetes' objects, at every change and after all faults ended."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from dray.api.claims import Claim
from dray.api.devices import DeviceId
from dray.api.names import (
    CLAIM_FINALIZER,
    DERIVED_FROM_LABEL,
    OWNER_DRAY,
    OWNER_KUBE_SCHEDULER,
    POOL_LABEL,
    VIRTUAL_TFLOPS,
    VIRTUAL_VRAM,
)
from dray.api.pods import Pod
from dray.api.quantities import parse_quantity
from dray.kube.convert import claim_from, pod_from, slice_from, time_from
from dray.kube.convert_groups import group_member
from dray.kube.memory_store import Event, MemoryStore
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    EVENTS,
    NODES,
    POD_GROUPS,
    PODS,
    POOLS,
    SLICES,
    TEMPLATES,
    Object,
)
from tools.simulation.refusals import LastingRefusal

EXPLAIN_WITHIN_S: Final = 10.0
"""Time from a pod's creation until it is bound or has an explanation. Without faults 3 s suffice;
one retry takes at most 5 s."""
_COMPONENTS: Final = "tensor-fusion.ai/"
"""Prefix of dray's reporting components."""


def explanation(store: MemoryStore, pod: Object) -> str:
    """Why the pod waits: its BindRequest's explanation and dray's warnings."""
    metadata = pod["metadata"]
    request = store.of(BIND_REQUESTS).get((metadata["namespace"], metadata["name"])) or {}
    is_own = (request.get("spec") or {}).get("podUID") == metadata["uid"]
    status = (request.get("status") or {}) if is_own else {}
    return "\n".join(
        [
            status.get("explanation") or "",
            *(
                event["message"]
                for event in store.of(EVENTS).values()
                if event["involvedObject"].get("uid") == metadata["uid"]
                and event["type"] == "Warning"
                and event.get("reportingComponent", "").startswith(_COMPONENTS)
            ),
        ]
    ).strip()


def unexplained_pods(
    store: MemoryStore, *, now_unix_s: float, since_unix_s: float, exempt: Callable[[Object], bool]
) -> Iterator[str]:
    """Pods that were neither bound nor explained in time, from their creation or from
    ``since_unix_s`` if that is later."""
    for pod in store.of(PODS).values():
        created_unix_s = time_from(pod["metadata"].get("creationTimestamp"))
        age_s = now_unix_s - max(created_unix_s, since_unix_s)
        if age_s <= EXPLAIN_WITHIN_S or pod["spec"].get("nodeName") or exempt(pod):
            continue
        read = pod_from(pod)
        if not read.claims or read.deleting or ("", read.pool) not in store.of(POOLS):
            continue
        if not explanation(store, pod):
            yield f"pod {read.name} is not bound and has no explanation after {age_s:.0f} s"


BUDGETS = (VIRTUAL_TFLOPS, VIRTUAL_VRAM)
_ENDED = ("Succeeded", "Failed")


@dataclass(slots=True)
class WatchedStore(MemoryStore):
    """A store that passes every change to ``invariants`` before its watchers."""

    invariants: Callable[[Event], None] = lambda _: None

    def announce(self, event: Event) -> None:
        """See ``MemoryStore.announce``."""
        self.invariants(event)
        MemoryStore.announce(self, event)


@dataclass(slots=True)
class SimulationInvariants:
    """Checks every change."""

    store: MemoryStore
    violations: list[str] = field(default_factory=list)
    capacity: dict[tuple[DeviceId, str], int] = field(default_factory=dict)
    """The largest published capacity of every device."""
    offered: dict[str, dict[tuple[DeviceId, str], int]] = field(default_factory=dict)
    """Capacities by existing slice."""
    claims: dict[str, Claim] = field(default_factory=dict)
    bound: int = 0
    """Bindings so far."""
    former_pools: dict[str, set[str]] = field(default_factory=dict)
    """Former pools by node."""
    pools_of_kube_scheduler: set[str] = field(default_factory=set)
    """Pools that kube-scheduler has ever owned: it ignores attempts that dray voided."""

    def check(self, event: Event) -> None:
        """Check one change."""
        if event.resource == SLICES:
            self._slice(event)
        elif event.resource == CLAIMS:
            self._claim(event)
        elif event.resource == PODS:
            self._pod(event)
        elif event.resource == NODES:
            self._node(event)
        elif event.resource == POOLS and _is_kube_schedulers(event.after):
            assert event.after is not None
            self.pools_of_kube_scheduler.add(event.after["metadata"]["name"])

    def _node(self, event: Event) -> None:
        before, after = _pool_of(event.before), _pool_of(event.after)
        if before and after and before != after:
            assert event.after is not None
            self.former_pools.setdefault(event.after["metadata"]["name"], set()).add(before)

    def _slice(self, event: Event) -> None:
        obj = event.after or event.before
        assert obj is not None
        if event.after is None:
            self.offered.pop(obj["metadata"]["name"], None)
            return
        offered = self.offered[obj["metadata"]["name"]] = budgets(obj)
        for key, value in offered.items():
            self.capacity[key] = max(self.capacity.get(key, 0), value)

    def _claim(self, event: Event) -> None:
        before = event.before
        if event.after is None:
            assert before is not None
            deleted = self.claims.pop(before["metadata"]["uid"], None)
            if deleted is not None:
                self._check_lost_allocation(deleted, None)
            return
        claim = claim_from(event.after)
        known = self.claims.get(claim.uid)
        self.claims[claim.uid] = claim
        if claim.allocation is not None:
            self._check_capacity(claim)
            is_new = known is None or known.allocation is None
            void = bool(claim.void) and claim.decision <= claim.void
            if is_new and void and claim.pool not in self.pools_of_kube_scheduler:
                self._report(
                    f"claim {claim.name} was allocated by attempt {claim.decision}, but voids "
                    f"attempts up to {claim.void}"
                )
        if known is not None and known.allocation is not None:
            self._check_lost_allocation(known, claim)
        for uid in claim.reserved_for:
            if claim.pod_uid and uid != claim.pod_uid:
                self._report(f"claim {claim.name} of pod {claim.pod_uid} is reserved for {uid}")

    def _check_capacity(self, claim: Claim) -> None:
        assert claim.allocation is not None
        for device in dict.fromkeys(one.id for one in claim.allocation.devices):
            for name in BUDGETS:
                used = {one.name: _use(one, device, name) for one in self.claims.values()}
                most = self.capacity.get((device, name), 0)
                if sum(used.values()) > most:
                    uses = {claim: amount // 10**9 for claim, amount in used.items() if amount}
                    self._report(
                        f"DOUBLE ALLOCATION of {device}: {name} {most // 10**9}, allocated {uses}"
                    )

    def _check_lost_allocation(self, before: Claim, after: Claim | None) -> None:
        """A running pod must keep its allocation."""
        if before.allocation is None or (after is not None and after.allocation is not None):
            return
        for obj in self.store.of(PODS).values():
            runs = obj["status"].get("phase") not in _ENDED
            if obj["metadata"]["uid"] == before.pod_uid and obj["spec"].get("nodeName") and runs:
                name = obj["metadata"]["name"]
                self._report(f"claim {before.name} of the bound pod {name} lost its allocation")

    def _pod(self, event: Event) -> None:
        if event.after is None:
            return
        before = (event.before or {"spec": {}})["spec"].get("nodeName")
        node = event.after["spec"].get("nodeName")
        if node == before:
            return
        pod = pod_from(event.after)
        self.bound += 1
        if before:
            self._report(f"pod {pod.name} was bound to {before} and then to {node}")
        for reference in pod.claims:
            self._placed(pod, node, reference.claim)

    def _placed(self, pod: Pod, node: str, name: str) -> None:
        obj = self.store.of(CLAIMS).get((pod.namespace, name))
        claim = None if obj is None else claim_from(obj)
        if claim is None or claim.allocation is None:
            self._report(f"pod {pod.name} is bound to {node} without an allocation of {name!r}")
        elif claim.allocation.node != node:
            self._report(f"pod {pod.name} is bound to {node}, its claim to {claim.allocation.node}")
        elif not claim.reserved_for and pod.binder != OWNER_DRAY:
            # kube-scheduler's binding came late, after it had taken its reservation back. The
            # resourceclaim-controller reserves again; until then no kubelet starts the pod.
            return
        elif claim.reserved_for != (pod.uid,):
            self._report(f"pod {pod.name} is bound, its claim reserved for {claim.reserved_for}")

    def _report(self, violation: str) -> None:
        self.violations.append(violation)


def _has_reason(refusal: LastingRefusal, reported: str) -> bool:
    return any(reason in reported for reason in refusal.reasons)


def _pool_of(node: Object | None) -> str:
    return str(((node or {}).get("metadata") or {}).get("labels", {}).get(POOL_LABEL) or "")


def _is_kube_schedulers(pool: Object | None) -> bool:
    return pool is not None and pool.get("spec", {}).get("owner") == OWNER_KUBE_SCHEDULER


def budgets(obj: Object) -> dict[tuple[DeviceId, str], int]:
    """Capacities in a ResourceSlice, in billionths; none of another driver's devices."""
    observed = slice_from(obj)
    return {
        (DeviceId(observed.driver, observed.pool, device.name), name): parse_quantity(
            device.capacity[name].value
        ).nano
        for device in observed.devices
        for name in BUDGETS
        if name in device.capacity
    }


def _use(claim: Claim, device: DeviceId, name: str) -> int:
    shares = claim.allocation.devices if claim.allocation is not None else ()
    return sum(
        parse_quantity(share.consumed[name]).nano
        for share in shares
        if share.id == device and name in share.consumed
    )


class QuietChecks:
    """Checks of a cluster after all faults ended."""

    def __init__(
        self,
        invariants: SimulationInvariants,
        unhealthy: Callable[[], Iterable[str]],
        refusals: Callable[[], Sequence[LastingRefusal]] = tuple,
    ) -> None:
        """``refusals`` may keep pods waiting, which must be explained by them."""
        self._invariants = invariants
        self._store = invariants.store
        self._unhealthy = unhealthy
        self._refusals = refusals

    def problems(self) -> list[str]:
        """Waiting pods that fit, and leftover objects."""
        return [*self._waiting(), *self._leftovers()]

    def _waiting(self) -> Iterable[str]:
        yield from self._waiting_groups()
        for obj in self._store.of(PODS).values():
            metadata, pod = obj["metadata"], pod_from(obj)
            if metadata.get("deletionTimestamp"):
                yield f"pod {pod.name} is being deleted and does not end"
            elif pod.member is not None and not pod.node:
                continue  # See its group.
            elif not pod.node and pod.claims and ("", pod.pool) in self._store.of(POOLS):
                fitting = [name for name in self._nodes(pod.pool) if self._fits(obj, name)]
                if fitting:
                    yield from self._check_waiting_pod(obj, fitting)
            elif pod.node and obj["status"].get("phase") == "Pending":
                yield f"pod {pod.name} is bound to {pod.node}, but does not start"

    def _waiting_groups(self) -> Iterator[str]:
        """Groups that run with fewer pods than their minimum, and groups that wait although they
        fit. The pods of a group are equal."""
        members: dict[tuple[str, str], list[Object]] = {}
        for obj in self._store.of(PODS).values():
            if (member := group_member(obj)) is not None and obj["status"].get("phase") != "Failed":
                key = member.group.namespace, member.group.name
                members.setdefault(key, []).append(obj)
        for key, pods in members.items():
            group = self._store.of(POD_GROUPS).get(key)
            waiting = [obj for obj in pods if not obj["spec"].get("nodeName")]
            lacks = (group["spec"]["minMember"] if group else 0) - len(pods) + len(waiting)
            if lacks > 0 and len(waiting) < len(pods):
                yield f"group {key[1]} lacks {lacks} pods for its minimum, and other pods of it run"
            if not waiting or lacks > len(waiting) or self._refusals():
                continue
            room = sum(self._room(waiting[0], node) for node in self._nodes_of(waiting[0]))
            if room >= max(1, lacks):
                yield f"group {key[1]} waits for {lacks} pods, and there is room for {room}"

    def _nodes_of(self, pod: Object) -> list[str]:
        pool = pod_from(pod).pool
        return self._nodes(pool) if ("", pool) in self._store.of(POOLS) else []

    def _check_waiting_pod(self, pod: Object, fitting: list[str]) -> Iterable[str]:
        """Problems of a pod that waits although a node has room for it."""
        name, reported = pod["metadata"]["name"], explanation(self._store, pod)
        about = [refusal for refusal in self._refusals() if refusal.concerns_pod(pod)]
        if not about and not self._waits_for_refused_claim(reported):
            yield f"pod {name} waits, but fits on {', '.join(fitting)}"
        for refusal in about:
            if not _has_reason(refusal, reported) and not (
                reported and self._waits_for_refused_pods(pod, refusal)
            ):
                yield f"pod {name} waits for {refusal}, which is not explained: {reported!r}"

    def _waits_for_refused_pods(self, pod: Object, refusal: LastingRefusal) -> bool:
        """Whether other pods of its pool report the refusal: their attempts hold the devices."""
        return any(
            other is not pod
            and refusal.concerns_pod(other)
            and pod_from(other).pool == pod_from(pod).pool
            and _has_reason(refusal, explanation(self._store, other))
            for other in self._store.of(PODS).values()
        )

    def _waits_for_refused_claim(self, reported: str) -> bool:
        """Whether the pod waits for devices of a claim whose attempt can't be voided, because
        writes of the claim are refused."""
        return any(
            refusal.concerns_pod_name(claim.name)
            and claim.name in reported
            and (claim.allocation is not None or claim.decision > claim.void)
            for claim in map(claim_from, self._store.of(CLAIMS).values())
            for refusal in self._refusals()
        )

    def _nodes(self, pool: str) -> list[str]:
        return [
            obj["metadata"]["name"]
            for obj in self._store.of(NODES).values()
            if obj["metadata"]["labels"].get(POOL_LABEL) == pool
            and not obj["spec"].get("unschedulable")
            and not self._is_refused(obj["metadata"]["name"])
        ]

    def _is_refused(self, node: str) -> bool:
        """Whether a refusal blocks a node, directly or by a former pool, whose lost log may have
        allocated its devices."""
        return any(
            one.concerns_node(node)
            or any(map(one.concerns_pool, self._invariants.former_pools.get(node, ())))
            for one in self._refusals()
        )

    def _fits(self, pod: Object, node: str) -> bool:
        return self._room(pod, node) > 0

    def _room(self, pod: Object, node: str) -> int:
        """How many pods like this one fit on a node: at most one per free device."""
        here = [
            other
            for other in self._store.of(PODS).values()
            if other["spec"].get("nodeName") == node and other["status"].get("phase") not in _ENDED
        ]
        allocatable = self._store.get(NODES, node, "")["status"]["allocatable"]
        cpus = int(allocatable["cpu"]) - len(here)  # every pod requests one cpu
        names = [other["metadata"]["name"] for other in here]
        if any(
            refusal.is_read(PODS.plural, name) for refusal in self._refusals() for name in names
        ):
            return 0  # A leader that never could read such a pod counts its node as full.
        shape = requested(pod)
        free = [
            device
            for device in self._devices(node)
            if all(self._free(device, name) >= shape[name] for name in BUDGETS)
        ]
        return max(0, min(cpus, len(free) // shape["count"]))

    def _devices(self, node: str) -> list[DeviceId]:
        unhealthy = set(self._unhealthy())
        found = {device for device, _ in self._published() if device.pool == node}
        return sorted((one for one in found if one.device not in unhealthy), key=str)

    def _free(self, device: DeviceId, name: str) -> int:
        used = sum(_use(claim, device, name) for claim in self._invariants.claims.values())
        return self._published()[device, name] - used

    def _published(self) -> dict[tuple[DeviceId, str], int]:
        found: dict[tuple[DeviceId, str], int] = {}
        for offered in self._invariants.offered.values():
            found |= offered
        return found

    def _leftovers(self) -> Iterable[str]:
        pods = {obj["metadata"]["uid"] for obj in self._store.of(PODS).values()}
        used = {
            entry.get("resourceClaimTemplateName")
            for obj in self._store.of(PODS).values()
            if obj["status"].get("phase") not in _ENDED
            for entry in obj["spec"].get("resourceClaims") or ()
        }
        for obj in self._store.of(CLAIMS).values():
            metadata, claim = obj["metadata"], claim_from(obj)
            if metadata.get("deletionTimestamp") and not claim.reserved_for:
                yield f"claim {metadata['name']} is being deleted, kept by {CLAIM_FINALIZER}"
            elif claim.pod_uid not in pods:
                yield f"claim {metadata['name']} belongs to a deleted pod"
        for obj in self._store.of(TEMPLATES).values():
            metadata = obj["metadata"]
            derived = DERIVED_FROM_LABEL in (metadata.get("labels") or {})
            kept = any(one.keeps_templates_of(metadata["namespace"]) for one in self._refusals())
            if derived and metadata["name"] not in used and not kept:
                yield f"derived template {metadata['name']} is unused"
        for obj in self._store.of(BIND_REQUESTS).values():
            owners = obj["metadata"].get("ownerReferences") or ()
            if not any(owner["uid"] in pods for owner in owners):
                yield f"BindRequest {obj['metadata']['name']} belongs to a deleted pod"


def requested(pod: Object) -> dict[str, int]:
    """The amounts in a pod's annotations, in billionths, and the number of GPUs."""
    annotations = pod["metadata"]["annotations"]
    prefix = "tensor-fusion.ai/"
    return {
        VIRTUAL_TFLOPS: parse_quantity(annotations[prefix + "tflops-request"]).nano,
        VIRTUAL_VRAM: parse_quantity(annotations[prefix + "vram-request"]).nano,
        "count": int(annotations[prefix + "gpu-count"]),
    }
