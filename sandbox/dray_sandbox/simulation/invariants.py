"""What must hold at any moment and once it is quiet again, from Kubernetes' objects alone."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from dray.api.claims import Claim
from dray.api.devices import DeviceId
from dray.api.names import (
    CLAIM_FINALIZER,
    DERIVED_FROM_LABEL,
    OWNER_KUBE_SCHEDULER,
    POOL_LABEL,
    VIRTUAL_TFLOPS,
    VIRTUAL_VRAM,
)
from dray.api.pods import Pod
from dray.api.quantities import parse_quantity
from dray.kube.convert import claim_from, pod_from, slice_from
from dray.kube.memory_store import Event, MemoryStore
from dray.kube.ports import (
    BIND_REQUESTS,
    CLAIMS,
    NODES,
    PODS,
    POOLS,
    SLICES,
    TEMPLATES,
    Object,
)
from dray_sandbox.simulation.explanations import explanation
from dray_sandbox.simulation.refusals import LastingRefusal

BUDGETS = (VIRTUAL_TFLOPS, VIRTUAL_VRAM)
_ENDED = ("Succeeded", "Failed")


@dataclass(slots=True)
class WatchedStore(MemoryStore):
    """A store that shows every change to a judge before anybody else sees it."""

    invariants: Callable[[Event], None] = lambda _: None
    _shown: int = 0

    def wake(self) -> None:
        """See ``MemoryStore.wake``."""
        while self._shown < len(self.events):
            self._shown += 1
            self.invariants(self.events[self._shown - 1])
        MemoryStore.wake(self)


@dataclass(slots=True)
class SimulationInvariants:
    """Holds every change against what may never happen."""

    store: MemoryStore
    violations: list[str] = field(default_factory=list)
    capacity: dict[tuple[DeviceId, str], int] = field(default_factory=dict)
    """Of every device ever published, the most that it had."""
    offered: dict[str, dict[tuple[DeviceId, str], int]] = field(default_factory=dict)
    """By slice that exists, what it offers."""
    claims: dict[str, Claim] = field(default_factory=dict)
    bound: int = 0
    """Bindings so far."""
    left: dict[str, set[str]] = field(default_factory=dict)
    """By node, the pools that it was in before."""
    lent: set[str] = field(default_factory=set)
    """Pools that kube-scheduler had once: it knows nothing of what dray has voided."""

    def see(self, event: Event) -> None:
        """One change."""
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
            self.lent.add(event.after["metadata"]["name"])

    def _node(self, event: Event) -> None:
        before, after = _pool_of(event.before), _pool_of(event.after)
        if before and after and before != after:
            assert event.after is not None
            self.left.setdefault(event.after["metadata"]["name"], set()).add(before)

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
            gone = self.claims.pop(before["metadata"]["uid"], None)
            if gone is not None:
                self._lost_by(gone, None)
            return
        claim = claim_from(event.after)
        known = self.claims.get(claim.uid)
        self.claims[claim.uid] = claim
        if claim.allocation is not None:
            self._sold(claim)
            anew = known is None or known.allocation is None
            void = bool(claim.void) and claim.decision <= claim.void
            if anew and void and claim.pool not in self.lent:
                self._accuse(
                    f"claim {claim.name} was allocated by attempt {claim.decision}, but voids "
                    f"attempts up to {claim.void}"
                )
        if known is not None and known.allocation is not None:
            self._lost_by(known, claim)
        for uid in claim.reserved_for:
            if claim.pod_uid and uid != claim.pod_uid:
                self._accuse(f"claim {claim.name} of pod {claim.pod_uid} is reserved for {uid}")

    def _sold(self, claim: Claim) -> None:
        assert claim.allocation is not None
        for device in dict.fromkeys(one.id for one in claim.allocation.devices):
            for name in BUDGETS:
                used = {one.name: _use(one, device, name) for one in self.claims.values()}
                most = self.capacity.get((device, name), 0)
                if sum(used.values()) > most:
                    held = {who: amount // 10**9 for who, amount in used.items() if amount}
                    self._accuse(f"DOUBLE SALE of {device}: {name} {most // 10**9}, sold {held}")

    def _lost_by(self, before: Claim, after: Claim | None) -> None:
        """A pod that runs must keep what it runs on."""
        if before.allocation is None or (after is not None and after.allocation is not None):
            return
        for obj in self.store.of(PODS).values():
            lives = obj["status"].get("phase") not in _ENDED
            if obj["metadata"]["uid"] == before.pod_uid and obj["spec"].get("nodeName") and lives:
                name = obj["metadata"]["name"]
                self._accuse(f"claim {before.name} of the bound pod {name} lost its allocation")

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
            self._accuse(f"pod {pod.name} was bound to {before} and then to {node}")
        for reference in pod.claims:
            self._placed(pod, node, reference.claim)

    def _placed(self, pod: Pod, node: str, name: str) -> None:
        obj = self.store.of(CLAIMS).get((pod.namespace, name))
        claim = None if obj is None else claim_from(obj)
        if claim is None or claim.allocation is None:
            self._accuse(f"pod {pod.name} is bound to {node} without an allocation of {name!r}")
        elif claim.allocation.node != node:
            self._accuse(f"pod {pod.name} is bound to {node}, its claim to {claim.allocation.node}")
        elif claim.reserved_for != (pod.uid,):
            self._accuse(f"pod {pod.name} is bound, its claim reserved for {claim.reserved_for}")

    def _accuse(self, violation: str) -> None:
        self.violations.append(violation)


def _says(refusal: LastingRefusal, told: str) -> bool:
    return any(words in told for words in refusal.words)


def _pool_of(node: Object | None) -> str:
    return str(((node or {}).get("metadata") or {}).get("labels", {}).get(POOL_LABEL) or "")


def _is_kube_schedulers(pool: Object | None) -> bool:
    return pool is not None and pool.get("spec", {}).get("owner") == OWNER_KUBE_SCHEDULER


def budgets(obj: Object) -> dict[tuple[DeviceId, str], int]:
    """What a ResourceSlice offers, in billionths; another driver's devices offer none of it."""
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
    """What is wrong in a cluster to which nothing happens any more."""

    def __init__(
        self,
        invariants: SimulationInvariants,
        unhealthy: Callable[[], Iterable[str]],
        refusals: Callable[[], Sequence[LastingRefusal]] = tuple,
    ) -> None:
        """``refusals``: what keeps pods waiting with reason; these must have been told it."""
        self._judge = invariants
        self._store = invariants.store
        self._unhealthy = unhealthy
        self._refusals = refusals

    def problems(self) -> list[str]:
        """Pods that fit and wait, and things left behind."""
        return [*self._waiting(), *self._litter()]

    def _waiting(self) -> Iterable[str]:
        for obj in self._store.of(PODS).values():
            metadata, pod = obj["metadata"], pod_from(obj)
            if metadata.get("deletionTimestamp"):
                yield f"pod {pod.name} is being deleted for ever"
            elif not pod.node and pod.claims and ("", pod.pool) in self._store.of(POOLS):
                fitting = [name for name in self._nodes(pod.pool) if self._fits(obj, name)]
                if fitting:
                    yield from self._kept_waiting(obj, fitting)
            elif pod.node and obj["status"].get("phase") == "Pending":
                yield f"pod {pod.name} is bound to {pod.node}, but does not start"

    def _kept_waiting(self, pod: Object, fitting: list[str]) -> Iterable[str]:
        """What is wrong about a pod that waits although there is room for it."""
        name, told = pod["metadata"]["name"], explanation(self._store, pod)
        about = [refusal for refusal in self._refusals() if refusal.is_about(pod)]
        if not about and not self._is_told_of_another(told):
            yield f"pod {name} waits, but fits on {', '.join(fitting)}"
        for refusal in about:
            if not _says(refusal, told) and not (told and self._is_behind_others(pod, refusal)):
                yield f"pod {name} waits for {refusal}, and was not told: {told!r}"

    def _is_behind_others(self, pod: Object, refusal: LastingRefusal) -> bool:
        """Whether others of its pool for which the same is refused are told so: attempts for them
        hold devices by turns, which is why it waits."""
        return any(
            other is not pod
            and refusal.is_about(other)
            and pod_from(other).pool == pod_from(pod).pool
            and _says(refusal, explanation(self._store, other))
            for other in self._store.of(PODS).values()
        )

    def _is_told_of_another(self, told: str) -> bool:
        """Whether it waits for devices of a claim which an attempt may still be committed to, for
        nobody can write that it is void."""
        return any(
            refusal.is_about_name(claim.name)
            and claim.name in told
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
            and not self._is_kept(obj["metadata"]["name"])
        ]

    def _is_kept(self, node: str) -> bool:
        """Whether a refusal keeps pods from a node: also one about a pool that it has left, as
        nobody knows what that pool's lost log gave away on it."""
        return any(
            one.is_about_node(node) or any(map(one.is_about_pool, self._judge.left.get(node, ())))
            for one in self._refusals()
        )

    def _fits(self, pod: Object, node: str) -> bool:
        here = [
            other
            for other in self._store.of(PODS).values()
            if other["spec"].get("nodeName") == node and other["status"].get("phase") not in _ENDED
        ]
        allocatable = self._store.get(NODES, node, "")["status"]["allocatable"]
        if len(here) + 1 > int(allocatable["cpu"]):  # every pod asks for one cpu
            return False
        shape = asked(pod)
        free = [
            device
            for device in self._devices(node)
            if all(self._free(device, name) >= shape[name] for name in BUDGETS)
        ]
        return len(free) >= shape["count"]

    def _devices(self, node: str) -> list[DeviceId]:
        sick = set(self._unhealthy())
        found = {device for device, _ in self._published() if device.pool == node}
        return sorted((one for one in found if one.device not in sick), key=str)

    def _free(self, device: DeviceId, name: str) -> int:
        used = sum(_use(claim, device, name) for claim in self._judge.claims.values())
        return self._published()[device, name] - used

    def _published(self) -> dict[tuple[DeviceId, str], int]:
        found: dict[tuple[DeviceId, str], int] = {}
        for offered in self._judge.offered.values():
            found |= offered
        return found

    def _litter(self) -> Iterable[str]:
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
                yield f"claim {metadata['name']} belongs to a pod that is gone"
        for obj in self._store.of(TEMPLATES).values():
            metadata = obj["metadata"]
            derived = DERIVED_FROM_LABEL in (metadata.get("labels") or {})
            kept = any(one.keeps_templates_of(metadata["namespace"]) for one in self._refusals())
            if derived and metadata["name"] not in used and not kept:
                yield f"derived template {metadata['name']} is unused"
        for obj in self._store.of(BIND_REQUESTS).values():
            owners = obj["metadata"].get("ownerReferences") or ()
            if not any(owner["uid"] in pods for owner in owners):
                yield f"BindRequest {obj['metadata']['name']} is of a pod that is gone"


def asked(pod: Object) -> dict[str, int]:
    """What a pod's annotations ask for, in billionths, and how many cards."""
    annotations = pod["metadata"]["annotations"]
    prefix = "tensor-fusion.ai/"
    return {
        VIRTUAL_TFLOPS: parse_quantity(annotations[prefix + "tflops-request"]).nano,
        VIRTUAL_VRAM: parse_quantity(annotations[prefix + "vram-request"]).nano,
        "count": int(annotations[prefix + "gpu-count"]),
    }
