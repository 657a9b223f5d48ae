"""The cache of watched objects, and which facts changed since they were published. Pure."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from dray.api.claims import UNREAD, Claim, GivenUp
from dray.api.names import SHAPE
from dray.api.pods import Pod
from dray.kube.convert import UNREADABLE, claim_from, pod_from, revision_of, why_unreadable
from dray.kube.ports import (
    CLAIMS,
    NODES,
    PODS,
    POOLS,
    SLICES,
    Changed,
    Deleted,
    Listed,
    Object,
    Resource,
    WatchEvent,
)
from dray_claim_controller.cache.abandoned_attempts import refresh_abandoned, with_void
from dray_claim_controller.cache.cached_objects import (
    CachedPod,
    CachedResourceClaim,
    FactKey,
    ObjectProblem,
    cached_pod,
    is_ours,
    unreadable_pod,
)
from dray_claim_controller.cache.claim_users import ClaimUsers
from dray_claim_controller.cache.devices import DeviceCache, is_vague, nodes_of
from dray_claim_controller.cache.pool_selectors import PoolSelectors
from dray_claim_controller.cache.resources import FACTS_OF, WATCHED, name_of, read

_RESOURCES = {
    FACTS_OF[resource.plural]: resource for resource in WATCHED if resource.plural in FACTS_OF
} | {"claim": CLAIMS, "pod": PODS, "slice": SLICES}
"""The resource that a fact is built from, by the fact's name."""
Converted = Mapping[tuple[str, str], Any]
"""Results of ``convert``, by UID and resourceVersion."""
NONE_CONVERTED: Final[Converted] = MappingProxyType({})


def convert(resource: Resource, obj: Object) -> Any:
    """The form in which the cache keeps an object. Most of the cost of applying an event."""
    if resource is CLAIMS:
        return claim_from(obj)
    if resource is not PODS:
        return read(resource, obj)
    try:
        pod = pod_from(obj) if obj["spec"].get("resourceClaims") else None
        return pod, cached_pod(obj, pod, revision_of(obj), ours=pod is not None), ""
    except UNREADABLE as error:
        return None, None, why_unreadable(error)


def version_of(obj: Object) -> tuple[str, str]:
    """An object's key in ``Converted``."""
    return obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]


_REMEMBERED_GONE = 10_000


class ObjectCache:
    """Claims and pods by UID, by name and by node; other kinds by name; UIDs of deleted objects.

    ``apply`` applies watch events; ``take_dirty`` returns the facts that changed.
    """

    def __init__(self) -> None:
        self.claims: dict[str, CachedResourceClaim] = {}
        self.given_up: dict[str, GivenUp] = {}
        """Attempts that are given up and not void by annotation, by UID of their claim."""
        self.pods: dict[str, CachedPod] = {}
        self.devices = DeviceCache()
        self.plain: dict[str, dict[str, Object]] = {resource.plural: {} for resource in WATCHED}
        """Objects of the other kinds, by plural and ``namespace/name``."""
        self.pool_selectors = PoolSelectors(self.plain)
        self.users = ClaimUsers()
        self.foreign_users = ClaimUsers()
        """Pods without dray's claims."""
        self._foreign_pods: dict[str, Pod] = {}
        self.anti_affinity_pods: dict[str, None] = {}
        """UIDs of pods with required anti-affinity."""
        self._claim_uids: dict[tuple[str, str], str] = {}
        self._pods_of_node: dict[str, dict[str, None]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()
        self.node_revision: dict[str, int] = {}
        self.revision = 0
        """Highest resourceVersion of any object."""
        self.listed: set[str] = set()
        """Plurals that were listed at least once."""
        self.unreadable: dict[FactKey, ObjectProblem] = {}
        """Objects that exist and can't be read, by plural and identity."""
        self.dirty: OrderedDict[FactKey, int] = OrderedDict()
        self._noted: dict[FactKey, None] = {}
        self._ready = NONE_CONVERTED

    @property
    def synced(self) -> bool:
        """Whether all kinds were listed once."""
        return len(self.listed) == len(WATCHED)

    def apply(
        self, resource: Resource, event: WatchEvent, ready: Converted = NONE_CONVERTED
    ) -> None:
        """Apply one watch event; ``ready``: its objects, converted before."""
        self._ready = ready
        match event:
            case Listed(objects, revision):
                self._relist(resource, objects, revision, is_whole=event.is_whole)
            case Changed(obj):
                self._put(resource, obj, watched=True)
            case Deleted(obj):
                self._drop(resource, obj)
        self._ready = NONE_CONVERTED

    def apply_response(self, resource: Resource, obj: Object) -> None:
        """Apply the response to an own write, which the watch shows later."""
        self._put(resource, obj, watched=False)

    def give_up(self, uid: str, record: GivenUp | None) -> None:
        """Record that attempts of a claim are given up although the claim can't be written; None:
        remove that record. The claim may be unknown yet."""
        if record is None:
            self.given_up.pop(uid, None)
        else:
            self.given_up[uid] = record
        if (cached := self.claims.get(uid)) is not None:
            claim = self._with_void(claim_from(cached.object))
            self.claims[uid] = CachedResourceClaim(
                claim, cached.object, cached.ours, cached.watched_revision
            )
            self.mark(FactKey("claim", uid), claim.resource_version)

    def _with_void(self, claim: Claim) -> Claim:
        known = self.given_up.get(claim.uid)
        if known is None:
            return claim
        left = refresh_abandoned(known, claim)
        if left is None:
            del self.given_up[claim.uid]
        else:
            self.given_up[claim.uid] = left
        return with_void(claim, left)

    def _converted(self, resource: Resource, obj: Object) -> Any:
        found = self._ready.get(version_of(obj)) if self._ready else None
        return convert(resource, obj) if found is None else found

    def mark(self, key: FactKey, revision: int = 0) -> None:
        """Have a fact built again."""
        self.dirty[key] = max(revision, self.dirty.get(key, 0))

    def mark_all(self) -> None:
        """Have every fact built again: pools and nodes first, then claims, then pods."""
        for plural, kind in FACTS_OF.items():
            for name in self.plain[plural]:
                self.mark(FactKey(kind, name))
        for name in self.devices.slices:
            self.mark(FactKey("slice", name))
        for uid in self.claims:
            self.mark(FactKey("claim", uid))
        for uid in self.pods:
            self.mark(FactKey("pod", uid))

    def take_dirty(self) -> list[tuple[FactKey, int]]:
        """Return and clear the keys that changed, in order, with the revision of the change."""
        taken = list(self.dirty.items())
        self.dirty.clear()
        return taken

    def take_noted(self) -> list[FactKey]:
        """Return and clear the objects whose readability, or the reason of it, changed."""
        taken = list(self._noted)
        self._noted.clear()
        return taken

    def restore_claim(self, cached: CachedResourceClaim) -> None:
        """Restore a claim of a snapshot; its devices are restored separately."""
        known = self.claims.get(cached.claim.uid)
        self.devices.place(known.claim if known is not None else None, cached.claim)
        self.keep_claim(cached)

    def find_unreadable(self) -> None:
        """Find the unreadable objects of a snapshot, except claims."""
        for resource in WATCHED:
            for name, obj in self.plain[resource.plural].items():
                self._note(resource, name, obj, read(resource, obj)[1])
        for uid, cached in self.pods.items():
            if cached.fills_node:
                self._note(PODS, uid, {"metadata": {"name": uid, "uid": uid}}, UNREAD)

    def restore_pod(self, cached: CachedPod) -> None:
        """Restore a pod of a snapshot."""
        is_foreign = cached.pod is None and bool(cached.object)
        self.note_foreign(cached.uid, pod_from(cached.object) if is_foreign else None)
        self._use(self.pods.get(cached.uid), cached)
        self.keep_pod(cached)

    def _relist(
        self, resource: Resource, objects: tuple[Object, ...], revision: int, *, is_whole: bool
    ) -> None:
        present = {obj["metadata"]["uid"] for obj in objects}
        for known, its_revision in self._objects(resource) if is_whole else ():
            # An object newer than the list is missing only because it is newer.
            if known["metadata"]["uid"] not in present and its_revision <= revision:
                self._drop(resource, known, revision)
        for obj in objects:
            self._put(resource, obj, watched=True)
        self.revision = max(self.revision, revision)
        self.listed.add(resource.plural)

    def _objects(self, resource: Resource) -> list[tuple[Object, int]]:
        if resource is CLAIMS:
            return [
                (cached.object, cached.claim.resource_version) for cached in self.claims.values()
            ]
        if resource is PODS:
            return [
                ({"metadata": {"uid": uid}}, cached.revision) for uid, cached in self.pods.items()
            ]
        return [(obj, revision_of(obj)) for obj in self.plain[resource.plural].values()]

    def _put(self, resource: Resource, obj: Object, *, watched: bool) -> None:
        revision = revision_of(obj)
        self.revision = max(self.revision, revision)
        if self.is_gone(obj["metadata"]["uid"]):
            return
        if resource is CLAIMS:
            self._put_claim(obj, revision, watched)
        elif resource is PODS:
            self._put_pod(obj, revision)
        else:
            self._put_plain(resource, obj, revision)

    def problem_of(self, key: FactKey, why: str) -> ObjectProblem | None:
        """The object of a fact, with its problem; None if the object is gone."""
        if key.kind == "claim" and (cached := self.claims.get(key.identity)) is not None:
            metadata = cached.object["metadata"]
        elif key.kind == "pod" and (pod := self.pods.get(key.identity)) is not None:
            metadata = pod.object.get("metadata")
        else:
            resource = _RESOURCES.get(key.kind, PODS)
            metadata = self.plain[resource.plural].get(key.identity, {}).get("metadata")
        return metadata and ObjectProblem.of(_RESOURCES[key.kind], metadata, why)

    def is_unreadable(self, key: FactKey) -> bool:
        """Whether the object of a fact exists and can't be read: its last fact stays."""
        resource = _RESOURCES.get(key.kind)
        return resource is not None and FactKey(resource.plural, key.identity) in self.unreadable

    def _note(self, resource: Resource, identity: str, obj: Object, why: str) -> None:
        """Note whether an object can be read; ``why``: the reason it can't, or empty."""
        key = FactKey(resource.plural, identity)
        if why:
            self.unreadable[key] = ObjectProblem.of(resource, obj["metadata"], why)
        elif self.unreadable.pop(key, None) is None:
            return
        self._noted[key] = None

    def _put_plain(self, resource: Resource, obj: Object, revision: int) -> None:
        name = name_of(obj)
        known = self.plain[resource.plural].get(name)
        if known is not None and revision_of(known) > revision:
            return
        was_readable = known is not None and FactKey(resource.plural, name) not in self.unreadable
        value, why = self._converted(resource, obj)
        self._note(resource, name, obj, why)
        if why and resource is SLICES:
            # Its devices are not offered; allocated devices count by their claims.
            if name in self.devices.slices:
                node = self.devices.slices[name][0].node
                self.devices.forget(name)
                self.mark(FactKey("slice", name), revision)
                self._mark_contested(node)
        elif why and was_readable:
            return  # The last readable version stays.
        self.plain[resource.plural][name] = obj
        if why:
            return
        if resource is SLICES:
            self.devices.keep(name, value, revision)
            self.mark(FactKey("slice", name), revision)
            self._mark_contested(value.node)
        elif resource is NODES:
            self._touch_node(name, revision)
        elif kind := FACTS_OF.get(resource.plural):
            self.mark(FactKey(kind, name), revision)
        if resource is POOLS and (known is None or known.get("spec") != obj.get("spec")):
            self._touch_nodes(revision)

    def _put_claim(self, obj: Object, revision: int, watched: bool) -> None:
        uid = obj["metadata"]["uid"]
        known = self.claims.get(uid)
        watched_revision = max(
            revision if watched else 0, known.watched_revision if known is not None else 0
        )
        if known is not None and known.claim.resource_version >= revision:
            # The same revision is the same object: the watch repeats the response to an own write.
            self.claims[uid] = CachedResourceClaim(
                known.claim, known.object, known.ours, watched_revision
            )
            return
        claim = self._with_void(self._converted(CLAIMS, obj))
        self._note(CLAIMS, uid, obj, claim.spec.unreadable)
        self._hold(known.claim if known is not None else None, claim)
        ours = is_ours(claim)
        self.keep_claim(CachedResourceClaim(claim, obj, ours, watched_revision))
        self.mark(FactKey("claim", uid), revision)
        self._mark_tied(known.claim if known is not None else None, claim)
        if ours and (known is None or not known.ours):
            self._adopt_pods(claim)
        before = () if known is None else nodes_of(known.claim)
        self._mark_contested(*dict.fromkeys((*before, *nodes_of(claim))))

    def _mark_contested(self, *nodes: str) -> None:
        """Mark nodes whose pool may depend on slices and claims: several pools select them."""
        for node in nodes:
            if self.pool_selectors.may_be_contested(node):
                self.mark(FactKey("node", node))

    def _hold(self, before: Claim | None, after: Claim | None) -> None:
        self.devices.hold(before, after)
        if is_vague(before) or is_vague(after):
            for name in self.devices.slices:
                self.mark(FactKey("slice", name))

    def _mark_tied(self, before: Claim | None, claim: Claim) -> None:
        """Mark facts that depend on a claim of another pool, or on a foreign allocation."""
        if before is None or before.pool != claim.pool:
            for pod in self.users.of(claim):
                if pod.pool != claim.pool:
                    self.mark(FactKey("pod", pod.uid))
        if claim.allocation is not None and not claim.decision:
            for node in nodes_of(claim):
                self.mark(FactKey("node", node))

    def _adopt_pods(self, claim: Claim) -> None:
        # A pod may be seen before the claim that makes it a pod of dray.
        for pod in list(self.foreign_users.of(claim)):
            cached = self.pods[pod.uid]
            self._put_pod(cached.object, revision_of(cached.object))

    def _put_pod(self, obj: Object, revision: int) -> None:
        uid = obj["metadata"]["uid"]
        known = self.pods.get(uid)
        if known is not None and known.revision > revision:
            return
        pod, cached, why = self._converted(PODS, obj)
        if cached is None:
            cached = unreadable_pod(obj, known, revision)
        elif pod is not None and not self._is_our_pod(obj, pod):
            cached = replace(cached, pod=None)
        if not why:
            self.note_foreign(uid, pod if cached.pod is None else None)
        self._note(PODS, uid, obj, why)
        self._use(known, cached)
        self.keep_pod(cached)
        if cached.node:
            self._touch_node(cached.node, revision)
        if cached.pod is not None:
            self.mark(FactKey("pod", uid), revision)

    def _use(self, before: CachedPod | None, after: CachedPod | None) -> None:
        """Mark claims that a pod of another pool refers to: their facts name that pool."""
        pods = [cached.pod if cached is not None else None for cached in (before, after)]
        for name in self.users.put(*pods):
            claim = self.claim_named(*name)
            if claim is not None and any(pod and pod.pool != claim.claim.pool for pod in pods):
                self.mark(FactKey("claim", claim.claim.uid))

    def _is_our_pod(self, obj: Object, pod: Pod) -> bool:
        annotations = obj["metadata"].get("annotations") or {}
        return SHAPE in annotations or bool(self.claims_of(pod))

    def _drop(self, resource: Resource, obj: Object, revision: int = 0) -> None:
        revision = max(revision, revision_of(obj))
        self.revision = max(self.revision, revision)
        uid = obj["metadata"]["uid"]
        self.remember_deleted(uid)
        by_uid = resource in (CLAIMS, PODS)
        self._note(resource, uid if by_uid else name_of(obj), obj, "")
        if resource is CLAIMS:
            self._drop_claim(uid, revision)
        elif resource is PODS:
            self._drop_pod(uid, revision)
        else:
            self._drop_plain(resource, obj, revision)

    def _drop_claim(self, uid: str, revision: int) -> None:
        known = self.forget_claim(uid)
        if known is None:
            return
        self._hold(known.claim, None)
        self.mark(FactKey("claim", uid), revision)
        self._mark_contested(*nodes_of(known.claim))

    def _drop_pod(self, uid: str, revision: int) -> None:
        known = self.forget_pod(uid)
        if known is None:
            return
        self.note_foreign(uid, None)
        self._use(known, None)
        if known.node:
            self._touch_node(known.node, revision)
        if known.pod is not None:
            self.mark(FactKey("pod", uid), revision)

    def _drop_plain(self, resource: Resource, obj: Object, revision: int) -> None:
        name = name_of(obj)
        known = self.plain[resource.plural].get(name)
        if known is None or known["metadata"]["uid"] != obj["metadata"]["uid"]:
            return
        del self.plain[resource.plural][name]
        if resource is SLICES and name in self.devices.slices:
            node = self.devices.slices[name][0].node
            self.devices.forget(name)
            self._mark_contested(node)
        kind = {SLICES.plural: "slice", NODES.plural: "node"} | FACTS_OF
        if resource.plural in kind:
            self.mark(FactKey(kind[resource.plural], name), revision)
        if resource is NODES:
            self.mark(FactKey("inventory", name), revision)
        if resource is POOLS:
            self._touch_nodes(revision)

    def _touch_node(self, name: str, revision: int) -> None:
        self.node_revision[name] = max(self.node_revision.get(name, 0), revision)
        self.mark(FactKey("node", name), revision)

    def _touch_nodes(self, revision: int) -> None:
        # The pool may have gained or lost any node.
        for name in self.plain[NODES.plural]:
            self._touch_node(name, revision)

    def keep_claim(self, cached: CachedResourceClaim) -> None:
        """Store a claim."""
        self.claims[cached.claim.uid] = cached
        self._claim_uids[cached.claim.namespace, cached.claim.name] = cached.claim.uid

    def forget_claim(self, uid: str) -> CachedResourceClaim | None:
        """Remove a claim, and return it."""
        known = self.claims.pop(uid, None)
        self.given_up.pop(uid, None)
        if known is not None:
            name = (known.claim.namespace, known.claim.name)
            if self._claim_uids.get(name) == uid:
                del self._claim_uids[name]
        return known

    def keep_pod(self, cached: CachedPod) -> None:
        """Store a pod."""
        known = self.pods.get(cached.uid)
        if known is not None and known.node != cached.node:
            self._pods_of_node.get(known.node, {}).pop(cached.uid, None)
        self.pods[cached.uid] = cached
        if cached.repels:
            self.anti_affinity_pods[cached.uid] = None
        if cached.node:
            self._pods_of_node.setdefault(cached.node, {})[cached.uid] = None

    def forget_pod(self, uid: str) -> CachedPod | None:
        """Remove a pod, and return it."""
        known = self.pods.pop(uid, None)
        if known is not None:
            self.anti_affinity_pods.pop(uid, None)
            if known.node:
                self._pods_of_node.get(known.node, {}).pop(uid, None)
        return known

    def note_foreign(self, uid: str, pod: Pod | None) -> None:
        """Store a pod that refers to claims, none of them dray's; None: no longer such a pod."""
        self.foreign_users.put(self._foreign_pods.pop(uid, None), pod)
        if pod is not None:
            self._foreign_pods[uid] = pod

    def claim_named(self, namespace: str, name: str) -> CachedResourceClaim | None:
        """A claim by name."""
        uid = self._claim_uids.get((namespace, name))
        return None if uid is None else self.claims.get(uid)

    def pods_on(self, node: str) -> list[CachedPod]:
        """All pods bound to a node, including terminated ones."""
        return [self.pods[uid] for uid in self._pods_of_node.get(node, ())]

    def our_pods(self) -> list[CachedPod]:
        """Pods that use dray's claims."""
        return [cached for cached in self.pods.values() if cached.pod is not None]

    def claims_of(self, pod: Pod) -> list[CachedResourceClaim]:
        """The pod's existing claims of dray."""
        return [cached for cached in self.every_claim_of(pod) if cached.ours]

    def every_claim_of(self, pod: Pod) -> list[CachedResourceClaim]:
        """The pod's existing claims, of all drivers."""
        found = (
            self.claim_named(pod.namespace, entry.claim) for entry in pod.claims if entry.claim
        )
        return [cached for cached in found if cached is not None]

    def gone(self) -> list[str]:
        """UIDs of deleted objects, oldest first."""
        return list(self._gone)

    def is_gone(self, uid: str) -> bool:
        """Whether an object was deleted."""
        return uid in self._gone

    def remember_deleted(self, uid: str) -> None:
        """Remember a deleted object, so that a late response does not restore it."""
        self._gone[uid] = None
        if len(self._gone) > _REMEMBERED_GONE:
            self._gone.popitem(last=False)

    def restore_gone(self, uids: Iterable[str]) -> None:
        """Restore the UIDs of deleted objects."""
        self._gone = OrderedDict.fromkeys(uids)
