"""The cache of watched objects, and which facts changed since they were published. Pure."""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from msgspec.structs import replace

from dray.api.claims import UNREAD, Claim, GivenUp
from dray.api.groups import DEFAULT_QUEUE
from dray.api.names import OWNER_KUBE_SCHEDULER
from dray.api.pods import TERMINAL_PHASES, GroupKey, Node, Pod
from dray.kube.convert import pod_from, revision_of
from dray.kube.ports import (
    CLAIMS,
    NATIVE_POD_GROUPS,
    NODES,
    POD_GROUPS,
    PODS,
    POLICIES,
    POOLS,
    PRIORITY_CLASSES,
    QUEUES,
    SLICES,
    Changed,
    Deleted,
    Listed,
    Object,
    ObjectVersion,
    Resource,
    Transform,
    WatchEvent,
)
from dray_claim_controller.cache.abandoned_attempts import refresh_abandoned, with_void
from dray_claim_controller.cache.cached_objects import (
    CachedPod,
    CachedResourceClaim,
    FactKey,
    ObjectProblem,
    is_ours,
)
from dray_claim_controller.cache.changes import ChangeFeed, Unread, enter, leave
from dray_claim_controller.cache.claim_users import ClaimUsers
from dray_claim_controller.cache.converted_objects import (
    ConvertedObject,
    ListedObject,
    UnchangedObject,
    convert,
    convert_text,
)
from dray_claim_controller.cache.devices import DeviceCache, is_vague, nodes_of
from dray_claim_controller.cache.group_members import (
    ForeignMember,
    GroupMembers,
    fact_key,
    key_from,
    resource_of,
)
from dray_claim_controller.cache.group_references import GroupReferences, QueueCounts, QueueShare
from dray_claim_controller.cache.object_texts import ObjectText, ObjectTexts
from dray_claim_controller.cache.pod_selection import PodSelection
from dray_claim_controller.cache.pool_selectors import PoolSelectors
from dray_claim_controller.cache.resources import FACTS_OF, WATCHED, name_of

_RESOURCES = {
    FACTS_OF[resource.plural]: resource for resource in WATCHED if resource.plural in FACTS_OF
} | {"claim": CLAIMS, "pod": PODS, "slice": SLICES}
"""The resource that a fact is built from, by the fact's name."""
_GROUPS = (POD_GROUPS, NATIVE_POD_GROUPS)
_PUT_AT_ONCE = 200
"""Objects of a first list that are applied in one step."""
_COMPARED_AT_ONCE = 2000
"""Known objects that are looked for in a list in one step."""
_SELECTED_AT_ONCE = 1000
"""Pods for which the function of a selection is called in one step."""
_REMEMBERED_GONE = 4_096
V = TypeVar("V", bound=Hashable)
PodValue = Callable[["ObjectCache", CachedPod], V | None]
"""A function of a pod and its claims, and of nothing else. Pure."""


def _key_of(resource: Resource, uid: str, name: str) -> FactKey:
    """The key of an object in ``ObjectCache.unreadable``."""
    return FactKey(resource.plural, uid if resource in (CLAIMS, PODS) else name)


def _group_named(resource: Resource, name: str) -> GroupKey:
    """The PodGroup with a name in the form of ``name_of``."""
    namespace, _, own = name.partition("/")
    return GroupKey(resource.group, namespace, own)  # type: ignore[arg-type]


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
        self.plain: dict[str, ObjectTexts] = {
            resource.plural: ObjectTexts() for resource in WATCHED
        }
        """Objects of the other kinds, by plural and ``namespace/name``."""
        self.nodes: dict[str, Node] = {}
        """Readable nodes, as ``node_from`` makes them."""
        self.pool_selectors = PoolSelectors()
        self.group_members = GroupMembers()
        self.group_references = GroupReferences()
        self._queue_counts: QueueCounts | None = None
        """None until it is used for the first time."""
        self.users = ClaimUsers()
        self.foreign_users = ClaimUsers()
        """Pods without dray's claims."""
        self._foreign_pods: dict[str, Pod] = {}
        self.anti_affinity_pods: dict[str, None] = {}
        """UIDs of pods with required anti-affinity."""
        self.template_users: dict[str, dict[str, None]] = {}
        """UIDs of pods that have not ended, by the ``namespace/name`` of the ResourceClaimTemplates
        that they refer to."""
        self.open_claims: dict[str, dict[str, None]] = {}
        """UIDs of claims of ours without allocation, by the pools that may decide about them:
        their own and those of their pods. An empty name: any pool may."""
        self._deciding_pools: dict[str, tuple[str, ...]] = {}
        """The keys of ``open_claims`` by UID."""
        self.changed_pods: ChangeFeed[str] = ChangeFeed()
        """UIDs of pods of ours that changed, or whose claims did, or that are gone."""
        self.changed_nodes: ChangeFeed[str] = ChangeFeed()
        """Names of nodes that changed, or whose devices or device holders did."""
        self.changed_pools: ChangeFeed[str] = ChangeFeed()
        """Names of GPUPools that changed, or whose policy came or went."""
        self._selections: dict[Callable[..., Any], PodSelection[Any]] = {}
        self._pod_numbers: dict[str, int] = {}
        """UIDs of pods, in the order in which they were first seen."""
        self._numbers = itertools.count()
        self._claim_uids: dict[tuple[str, str], str] = {}
        self._pods_of_node: dict[str, dict[str, None]] = {}
        self._gone: OrderedDict[str, int | None] = OrderedDict()
        """UIDs of deleted objects, with the revision up to which they were deleted; None: it is
        unknown, as no watch or list has shown it yet."""
        self.node_revision: dict[str, int] = {}
        self.revision = 0
        """Highest resourceVersion of any object."""
        self.listed: dict[str, int] = {}
        """By plural of kinds that were listed at least once, the newest resourceVersion that a list
        or an event of the watch has shown."""
        self.unreadable: dict[FactKey, ObjectProblem] = {}
        """Objects that exist and can't be read, by plural and identity."""
        self.is_published = True
        """Whether facts are published; otherwise nothing notes which facts changed."""
        self.dirty: OrderedDict[FactKey, int] = OrderedDict()
        self._newly_marked: dict[FactKey, None] = {}
        self._noted: dict[FactKey, None] = {}

    @property
    def synced(self) -> bool:
        """Whether all kinds were listed once."""
        return len(self.listed) == len(WATCHED)

    def apply(self, resource: Resource, event: WatchEvent) -> None:
        """Apply one watch event; a list in one step."""
        match event:
            case Listed(objects, revision):
                converted = tuple(map(self.transform(resource), objects))
                listed = Listed(converted, revision, event.is_whole)
                for _ in self.apply_list(resource, listed):
                    pass
            case Changed(obj):
                self._put(resource, convert(resource, obj), watched=True)
                self._show(resource, revision_of(obj))
            case Deleted(obj):
                self._drop(resource, obj["metadata"]["uid"], name_of(obj), revision_of(obj))
                self._show(resource, revision_of(obj))

    def _show(self, resource: Resource, revision: int) -> None:
        """The watch has shown everything of a kind up to a revision."""
        if (known := self.listed.get(resource.plural)) is not None:
            self.listed[resource.plural] = max(known, revision)

    def transform(self, resource: Resource) -> Transform:
        """What converts listed objects for ``apply_list``; objects that the cache has are not
        converted again."""

        def known(version: ObjectVersion) -> UnchangedObject | None:
            name = f"{version.namespace}/{version.name}" if version.namespace else version.name
            is_unread = _key_of(resource, version.uid, name) in self.unreadable
            if not is_unread and self._known_revision(resource, version.uid, name) == (
                version.revision
            ):
                return UnchangedObject(version.uid, version.revision)
            return None

        return Transform(
            known,
            partial(convert, resource),
            read=partial(convert_text, resource),
            knows_any=lambda: resource.plural in self.listed,
        )

    def apply_list(self, resource: Resource, listed: Listed) -> Iterator[None]:
        """Apply a list of ``ListedObject`` in steps. The objects of a kind's first list become
        visible step by step. The changes of a later list all become visible in the last step,
        because the order of its objects is not the order in which they changed."""
        revision = listed.resource_version
        present: set[str] = set()
        changed: list[ConvertedObject] = []
        for number, one in enumerate(listed.objects, start=1):
            present.add(one.uid)
            if isinstance(one, ConvertedObject):
                changed.append(one)
            elif resource is CLAIMS:
                self._note_watched(one.uid, one.revision)
            if number % _COMPARED_AT_ONCE == 0:
                yield
        missing: list[tuple[str, str]] = []
        for number, (uid, name) in enumerate(self._known(resource), start=1):
            if listed.is_whole and uid not in present:
                missing.append((uid, name))
            if number % _COMPARED_AT_ONCE == 0:
                yield
        for uid, name in missing:
            known = self._known_revision(resource, uid, name)
            # An object newer than the list is missing only because it is newer.
            if known is not None and known <= revision:
                self._drop(resource, uid, name, revision)
        is_first = resource.plural not in self.listed
        for number, new in enumerate(changed, start=1):
            self._put_listed(resource, new, revision)
            if is_first and number % _PUT_AT_ONCE == 0:
                yield
        self.revision = max(self.revision, revision)
        self.listed.setdefault(resource.plural, 0)
        self._show(resource, revision)

    def apply_missing(self, resource: Resource, known: Object) -> None:
        """Apply that a read has not found an object. Such an answer has no revision: a list that
        arrives later may be older, and the watch has not shown the deletion yet."""
        uid, revision = known["metadata"]["uid"], revision_of(known)
        self._drop(resource, uid, name_of(known), revision, is_shown=False)

    def apply_response(self, resource: Resource, obj: Object) -> None:
        """Apply the response to an own write, which the watch shows later."""
        self._put(resource, convert(resource, obj), watched=False)

    def apply_listed_response(self, resource: Resource, one: ListedObject) -> None:
        """Apply an object of a list that is not the watch's own."""
        if isinstance(one, ConvertedObject):
            self._put(resource, one, watched=False)

    def give_up(self, uid: str, record: GivenUp | None) -> None:
        """Record that attempts of a claim are given up although the claim can't be written; None:
        remove that record. The claim may be unknown yet."""
        if record is None:
            self.given_up.pop(uid, None)
        else:
            self.given_up[uid] = record
        if (cached := self.claims.get(uid)) is not None:
            claim = self._with_void(cached.as_written)
            self.claims[uid] = replace(cached, claim=claim)
            self.mark(FactKey("claim", uid), claim.resource_version)
            self._tell_pods_of(claim)

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

    def mark(self, key: FactKey, revision: int = 0) -> None:
        """Have a fact built again."""
        if self.is_published:
            self.dirty[key] = max(revision, self.dirty.get(key, 0))
            self._newly_marked[key] = None

    def all_facts(self) -> Iterator[FactKey]:
        """The keys of every fact: pools and nodes first, then claims, then pods. Objects may come
        and go while it is read."""
        for plural, kind in FACTS_OF.items():
            yield from (FactKey(kind, name) for name in tuple(self.plain[plural]))
        yield from (FactKey("slice", name) for name in tuple(self.devices.slices))
        yield from (FactKey("claim", uid) for uid in tuple(self.claims))
        for resource in _GROUPS:
            names = tuple(self.plain[resource.plural])
            yield from (fact_key(_group_named(resource, name)) for name in names)
        yield from (FactKey("pod", uid) for uid in tuple(self.pods))

    def take_dirty(self, most: int | None = None) -> list[tuple[FactKey, int]]:
        """Return and forget the keys that changed first, at most ``most`` of them, in order, with
        the revision of the change."""
        taken = list(islice(self.dirty.items(), most))
        for key, _ in taken:
            del self.dirty[key]
            self._newly_marked.pop(key, None)
        return taken

    def take_newly_marked(self) -> list[FactKey]:
        """The keys that were marked since this, or ``take_dirty``, was called last. They stay
        dirty."""
        taken = list(self._newly_marked)
        self._newly_marked.clear()
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
        self._find_deciding_pools(cached.claim.uid)

    def find_unreadable(self) -> None:
        """Find the unreadable objects of a snapshot, except claims, and which pools select which
        nodes."""
        for resource in WATCHED:
            for obj in self.plain[resource.plural].values():
                converted = convert(resource, obj)
                self._note(resource, converted, converted.why_unreadable)
                if resource in (NODES, POOLS):
                    self._select(resource, converted)
                if resource in _GROUPS:
                    key = _group_named(resource, converted.name)
                    self.group_references.put(key, converted.value)
        for uid, cached in self.pods.items():
            if cached.fills_node:
                self._note(PODS, ConvertedObject(uid, ObjectText(uid, 0, b""), cached), UNREAD)

    def restore_pod(self, cached: CachedPod) -> None:
        """Restore a pod of a snapshot."""
        is_foreign = cached.pod is None and bool(cached.text)
        pod = pod_from(cached.object) if is_foreign else None
        self.note_foreign(cached.uid, pod, ended=cached.terminal)
        self._use(self.pods.get(cached.uid), cached)
        self.keep_pod(cached)

    def _known(self, resource: Resource) -> list[tuple[str, str]]:
        """UID and ``namespace/name`` of each object; the name is empty for kinds that are kept by
        UID."""
        if resource in (CLAIMS, PODS):
            return [(uid, "") for uid in (self.claims if resource is CLAIMS else self.pods)]
        return [(version.uid, name) for name, version in self.plain[resource.plural].versions()]

    def _known_revision(self, resource: Resource, uid: str, name: str) -> int | None:
        """The resourceVersion in which an object is cached."""
        if resource is CLAIMS:
            claim = self.claims.get(uid)
            return None if claim is None else claim.claim.resource_version
        if resource is PODS:
            pod = self.pods.get(uid)
            return None if pod is None else pod.revision
        version = self.plain[resource.plural].version(name)
        return version.revision if version is not None and version.uid == uid else None

    def _put(self, resource: Resource, new: ConvertedObject, *, watched: bool) -> None:
        self.revision = max(self.revision, new.revision)
        if self.is_gone(new.uid):
            return
        if resource is CLAIMS:
            self._put_claim(new, watched)
        elif resource is PODS:
            self._put_pod(new)
        else:
            self._put_plain(resource, new)

    def _put_listed(self, resource: Resource, new: ConvertedObject, revision: int) -> None:
        """Put an object of a list of this revision. If the object was deleted at or before this
        revision, or was known in a newer version, the API server's store was restored from a
        backup."""
        gone = self._gone.get(new.uid)
        if gone is not None and gone <= revision:
            del self._gone[new.uid]
        known = self._known_revision(resource, new.uid, new.name)
        if known is not None and new.revision < known <= revision:
            self._drop(resource, new.uid, new.name, revision)
            del self._gone[new.uid]
        self._put(resource, new, watched=True)

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

    def object_of(self, key: FactKey) -> tuple[Resource, int | None] | None:
        """The kind of a fact's object, and its cached resourceVersion (None: it is not cached);
        None for facts without an object."""
        if key.kind == "group":
            group = key_from(key)
            resource = next(one for one in _GROUPS if one.group == group.api)
            version = self.plain[resource.plural].version(f"{group.namespace}/{group.name}")
            return resource, None if version is None else version.revision
        if (found := _RESOURCES.get(key.kind)) is None:
            return None
        if found in (CLAIMS, PODS):
            return found, self._known_revision(found, key.identity, "")
        version = self.plain[found.plural].version(key.identity)
        return found, None if version is None else version.revision

    def is_restored(self, key: FactKey, revision: int) -> bool:
        """Whether an object that was at a revision is in an older version now, although the watch
        has shown everything up to that revision: the API server's store was restored from a
        backup."""
        found = self.object_of(key)
        if found is None or found[1] is None:
            return False
        return found[1] < revision <= self.listed.get(found[0].plural, 0)

    def is_unreadable(self, key: FactKey) -> bool:
        """Whether the object of a fact exists and can't be read: its last fact stays."""
        resource = _RESOURCES.get(key.kind)
        return resource is not None and FactKey(resource.plural, key.identity) in self.unreadable

    def _note(self, resource: Resource, new: ConvertedObject, why: str) -> None:
        """Note whether an object can be read; ``why``: the reason it can't, or empty."""
        namespace, _, name = new.name.rpartition("/")
        if why:
            problem = ObjectProblem(resource, namespace, name, new.uid, why)
            key = _key_of(resource, new.uid, new.name)
            self.unreadable[key] = problem
            self._noted[key] = None
        else:
            self._note_readable(_key_of(resource, new.uid, new.name))

    def _note_readable(self, key: FactKey) -> None:
        """Note that an object can be read, or is gone."""
        if self.unreadable.pop(key, None) is not None:
            self._noted[key] = None

    def _put_plain(self, resource: Resource, new: ConvertedObject) -> None:
        name, revision, why = new.name, new.revision, new.why_unreadable
        texts = self.plain[resource.plural]
        known = texts.version(name)
        if known is not None and known.revision > revision:
            return
        was_readable = known is not None and FactKey(resource.plural, name) not in self.unreadable
        self._note(resource, new, why)
        if why and resource is SLICES:
            # Its devices are not offered; allocated devices count by their claims.
            if name in self.devices.slices:
                node = self.devices.slices[name][0].node
                self.devices.forget(name)
                self.mark(FactKey("slice", name), revision)
                self._mark_contested(node)
        elif why and was_readable:
            return  # The last readable version stays.
        spec = texts[name].get("spec") if resource is POOLS and known is not None else None
        texts.put(name, new.version)
        concerned = self._select(resource, new) if resource in (NODES, POOLS) else []
        if resource in _GROUPS:
            self.group_references.put(_group_named(resource, name), new.value)
        if resource is POOLS and (known is None or spec != new.object.get("spec")):
            self._touch_nodes(concerned, revision)
        if resource is POLICIES:
            self._touch_nodes(self._ordered_by(name), revision)
        if resource is not POLICIES or known is None:
            self._tell_plain(resource, name, revision)
        if why:
            return
        if resource is SLICES:
            self.devices.keep(name, new.value, revision)
            self.mark(FactKey("slice", name), revision)
            self._mark_contested(new.value.node)
        elif resource is NODES:
            self._touch_node(name, revision)
        elif kind := FACTS_OF.get(resource.plural):
            self.mark(FactKey(kind, name), revision)

    def _select(self, resource: Resource, new: ConvertedObject) -> list[str]:
        """Store a node, or note which nodes a pool selects. Returns the nodes whose pool may have
        changed."""
        if resource is POOLS:
            return self.pool_selectors.put_pool(new.name, new.value)
        node: Node | None = new.value
        if node is None:
            self.nodes.pop(new.name, None)
            labels = new.object["metadata"].get("labels") or {}
        else:
            self.nodes[new.name], labels = node, node.labels
        self.pool_selectors.put_node(new.name, labels)
        return []

    def _ordered_by(self, policy: str) -> list[str]:
        """The nodes whose device order comes from this SchedulingConfigTemplate."""
        pools = self.pool_selectors.pools().values()
        names = [
            one.name
            for one in pools
            if one.template == policy and one.owner == OWNER_KUBE_SCHEDULER
        ]
        return [node for pool in names for node in self.pool_selectors.selected_by(pool)]

    def _note_watched(self, uid: str, revision: int) -> None:
        """The watch has shown this version of a claim."""
        known = self.claims.get(uid)
        if known is not None and known.watched_revision < revision:
            self.claims[uid] = replace(known, watched_revision=revision)

    def _put_claim(self, new: ConvertedObject, watched: bool) -> None:
        uid, revision = new.uid, new.revision
        known = self.claims.get(uid)
        if known is not None and known.claim.resource_version >= revision:
            # The same revision is the same object: the watch repeats the response to an own write.
            if watched:
                self._note_watched(uid, revision)
            return
        watched_revision = max(
            revision if watched else 0, known.watched_revision if known is not None else 0
        )
        claim = self._with_void(new.value)
        self._note(CLAIMS, new, claim.spec.unreadable)
        self._hold(known.claim if known is not None else None, claim)
        ours = is_ours(claim)
        void = new.value.void
        self.keep_claim(CachedResourceClaim(claim, new.version.text, ours, watched_revision, void))
        self.mark(FactKey("claim", uid), revision)
        self._mark_tied(known.claim if known is not None else None, claim)
        if ours and (known is None or not known.ours):
            self._adopt_pods(claim)
        self._find_deciding_pools(uid)
        self._tell_pods_of(claim)
        before = () if known is None else nodes_of(known.claim)
        self._mark_contested(*dict.fromkeys((*before, *nodes_of(claim))))

    def _tell_pods_of(self, claim: Claim) -> None:
        self.changed_pods.put(*(pod.uid for pod in self.users.of(claim)))

    def _find_deciding_pools(self, uid: str) -> None:
        """Note which pools may decide about a claim, which may be gone."""
        for pool in self._deciding_pools.pop(uid, ()):
            leave(self.open_claims, pool, uid)
        cached = self.claims.get(uid)
        if cached is None or not cached.ours or cached.claim.allocation is not None:
            return
        pools = {cached.claim.pool, *(pod.pool for pod in self.users.of(cached.claim))}
        self._deciding_pools[uid] = tuple(pools) if cached.claim.pool else ("",)
        for pool in self._deciding_pools[uid]:
            enter(self.open_claims, pool, uid)

    def _mark_contested(self, *nodes: str) -> None:
        """Slices or claims of these nodes changed. Mark the nodes whose pool may depend on them,
        because several pools select the node."""
        self.changed_nodes.put(*nodes)
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
            self._keep_pod_of(replace(self.pods[pod.uid], pod=pod))

    def _put_pod(self, new: ConvertedObject) -> None:
        known, cached = self.pods.get(new.uid), new.value
        if known is not None and known.revision > new.revision:
            return
        if new.why_unreadable and known is not None:
            # Its last state stays, unless it has ended.
            cached = replace(
                known,
                revision=new.revision,
                node=cached.node or known.node,
                terminal=known.terminal or cached.terminal,
            )
        self._note(PODS, new, new.why_unreadable)
        self._keep_pod_of(cached, is_readable=not new.why_unreadable)

    def _keep_pod_of(self, cached: CachedPod, *, is_readable: bool = True) -> None:
        """Store a pod, as one of ours only if it is."""
        uid, pod = cached.uid, cached.pod
        known = self.pods.get(uid)
        if pod is not None and not (cached.has_shape or cached.is_member or self.claims_of(pod)):
            cached = replace(cached, pod=None)
        if is_readable:
            self.note_foreign(uid, pod if cached.pod is None else None, ended=cached.terminal)
        self._use(known, cached)
        self.keep_pod(cached)
        if cached.node:
            self._touch_node(cached.node, cached.revision)
        if cached.pod is not None:
            self.mark(FactKey("pod", uid), cached.revision)
        if cached.pod is not None or (known is not None and known.pod is not None):
            self.changed_pods.put(uid)

    def _use(self, before: CachedPod | None, after: CachedPod | None) -> None:
        """Mark claims that a pod of another pool refers to: their facts name that pool. Mark the
        pod's group if its fact depends on what changed."""
        pods = [cached.pod if cached is not None else None for cached in (before, after)]
        for group in self.group_members.put(*pods):
            self.mark(fact_key(group))
        for name in self.users.put(*pods):
            claim = self.claim_named(*name)
            if claim is not None:
                self._find_deciding_pools(claim.claim.uid)
            if claim is not None and any(pod and pod.pool != claim.claim.pool for pod in pods):
                self.mark(FactKey("claim", claim.claim.uid))

    def _drop(
        self, resource: Resource, uid: str, name: str, revision: int, *, is_shown: bool = True
    ) -> None:
        """Forget a deleted object. ``is_shown``: whether a watch or list has shown it deleted at
        that revision."""
        self.revision = max(self.revision, revision)
        self.remember_deleted(uid, revision if is_shown else None)
        self._note_readable(_key_of(resource, uid, name))
        if resource is CLAIMS:
            self._drop_claim(uid, revision)
        elif resource is PODS:
            self._drop_pod(uid, revision)
        else:
            self._drop_plain(resource, uid, name, revision)

    def _drop_claim(self, uid: str, revision: int) -> None:
        known = self.forget_claim(uid)
        if known is None:
            return
        self._hold(known.claim, None)
        self.mark(FactKey("claim", uid), revision)
        self._find_deciding_pools(uid)
        self._tell_pods_of(known.claim)
        self._mark_contested(*nodes_of(known.claim))

    def _drop_pod(self, uid: str, revision: int) -> None:
        known = self.forget_pod(uid)
        if known is None:
            return
        self.note_foreign(uid, None)
        self._use(known, None)
        if known.node:
            self._touch_node(known.node, revision)
            self._forget_node(known.node)
        if known.pod is not None:
            self.mark(FactKey("pod", uid), revision)
            self.changed_pods.put(uid)

    def _drop_plain(self, resource: Resource, uid: str, name: str, revision: int) -> None:
        known = self.plain[resource.plural].version(name)
        if known is None or known.uid != uid:
            return
        self.plain[resource.plural].drop(name)
        if resource is SLICES and name in self.devices.slices:
            node = self.devices.slices[name][0].node
            self.devices.forget(name)
            self._mark_contested(node)
        kind = {SLICES.plural: "slice", NODES.plural: "node"} | FACTS_OF
        if resource.plural in kind:
            self.mark(FactKey(kind[resource.plural], name), revision)
        if resource is NODES:
            self.nodes.pop(name, None)
            self.mark(FactKey("inventory", name), revision)
            self.pool_selectors.drop_node(name)
            self._forget_node(name)
        if resource in _GROUPS:
            self.group_references.put(_group_named(resource, name), None)
        if resource is POOLS:
            self._touch_nodes(self.pool_selectors.drop_pool(name), revision)
        if resource is POLICIES:
            self._touch_nodes(self._ordered_by(name), revision)
        self._tell_plain(resource, name, revision)

    def _touch_node(self, name: str, revision: int) -> None:
        self.node_revision[name] = max(self.node_revision.get(name, 0), revision)
        self.mark(FactKey("node", name), revision)

    def _forget_node(self, name: str) -> None:
        """Forget a node that is gone once its pods are gone: its name may never come back."""
        if name not in self.plain[NODES.plural] and name not in self._pods_of_node:
            self.node_revision.pop(name, None)

    def _tell_plain(self, resource: Resource, name: str, revision: int) -> None:
        """An object came, changed or went."""
        if resource is NODES:
            self.changed_nodes.put(name)
        elif resource is POOLS:
            self.changed_pools.put(name)
        elif resource is POLICIES:
            pools = self.pool_selectors.pools().values()
            self.changed_pools.put(*(pool.name for pool in pools if pool.template == name))
        elif resource in _GROUPS:
            self._tell_group(_group_named(resource, name), revision)
        elif resource in (QUEUES, PRIORITY_CLASSES):
            for group in self.group_references.naming(resource.plural, name):
                self._tell_group(group)

    def _tell_group(self, group: GroupKey, revision: int = 0) -> None:
        """A PodGroup came, changed or went, or what its fact depends on did."""
        self.mark(fact_key(group), revision)
        self.group_members.changed.put(group)

    def queue_counts(self) -> QueueCounts:
        """The groups of each Queue, brought up to date."""
        if self._queue_counts is None:
            unread: Unread[GroupKey] = Unread()
            unread.add(_group_named(POD_GROUPS, name) for name in self.plain[POD_GROUPS.plural])
            self.group_members.changed.subscribe(unread)
            self._queue_counts = QueueCounts(unread)
        self._queue_counts.refresh(self._queue_share)
        return self._queue_counts

    def _queue_share(self, key: GroupKey) -> QueueShare | None:
        if (obj := self.group(key)) is None:
            return None
        pods = (cached.pod for cached in self.members_of(key))
        running = (pod for pod in pods if pod is not None and pod.node and not pod.deleting)
        return QueueShare(
            queue=(obj.get("spec") or {}).get("queue") or DEFAULT_QUEUE,
            phase=((obj.get("status") or {}).get("phase") or "Pending").lower(),
            running=sum(pod.phase not in TERMINAL_PHASES for pod in running),
        )

    def _touch_nodes(self, names: Iterable[str], revision: int) -> None:
        for name in names:
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
            leave(self._pods_of_node, known.node, cached.uid)
        for name in known.templates if known is not None else ():
            leave(self.template_users, name, cached.uid)
        for name in cached.templates:
            enter(self.template_users, name, cached.uid)
        if known is None:
            self._pod_numbers[cached.uid] = next(self._numbers)
        self.pods[cached.uid] = cached
        if cached.repels:
            self.anti_affinity_pods[cached.uid] = None
        if cached.node:
            enter(self._pods_of_node, cached.node, cached.uid)

    def forget_pod(self, uid: str) -> CachedPod | None:
        """Remove a pod, and return it."""
        known = self.pods.pop(uid, None)
        if known is not None:
            del self._pod_numbers[uid]
            self.anti_affinity_pods.pop(uid, None)
            for name in known.templates:
                leave(self.template_users, name, uid)
            if known.node:
                leave(self._pods_of_node, known.node, uid)
        return known

    def group(self, key: GroupKey) -> Object | None:
        """A PodGroup."""
        return self.plain[resource_of(key)].get(f"{key.namespace}/{key.name}")

    def members_of(self, group: GroupKey) -> list[CachedPod]:
        """The pods of a group that dray schedules, in the order in which they were first seen."""
        return [self.pods[uid] for uid in self.in_order(self.group_members.of(group))]

    def note_foreign(self, uid: str, pod: Pod | None, *, ended: bool = False) -> None:
        """Store a pod that refers to claims or a group, and is not dray's; None: it is no longer
        such a pod."""
        foreign = None
        if pod is not None and pod.member is not None and not ended:
            foreign = ForeignMember(pod.member.group, pod.scheduler)
        for group in self.group_members.put_foreign(uid, foreign):
            self.mark(fact_key(group))
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

    def select(self, value: PodValue[V]) -> PodSelection[V]:
        """The pods of ours that lack a node, and are not being deleted, for which ``value`` is not
        None; brought up to date."""
        selection = self._selection(value)
        selection.refresh()
        return selection

    def prepare(self, value: PodValue[V]) -> Iterator[None]:
        """Bring a selection up to date in steps, so that ``select`` has little left to do."""
        while self._selection(value).refresh(_SELECTED_AT_ONCE):
            yield

    def changes_of(self, value: PodValue[V]) -> ChangeFeed[V]:
        """Values that a pod of the selection got or lost, once it is brought up to date."""
        return self._selection(value).changed

    def _selection(self, value: PodValue[V]) -> PodSelection[V]:
        selection = self._selections.get(value)
        if selection is None:
            unread: Unread[str] = Unread()
            unread.add(self.pods)
            self.changed_pods.subscribe(unread)
            selection = PodSelection(self.pods, partial(value, self), unread)
            self._selections[value] = selection
        return selection

    def in_order(self, uids: Iterable[str]) -> list[str]:
        """UIDs of pods in the order in which they were first seen."""
        return sorted(uids, key=self._pod_numbers.__getitem__)

    def claims_without_allocation(self) -> Iterable[str]:
        """UIDs of the claims of ours that have no allocation."""
        return self._deciding_pools.keys()

    def claims_of(self, pod: Pod) -> list[CachedResourceClaim]:
        """The pod's existing claims of dray."""
        return [cached for cached in self.every_claim_of(pod) if cached.ours]

    def every_claim_of(self, pod: Pod) -> list[CachedResourceClaim]:
        """The pod's existing claims, of all drivers."""
        found = (
            self.claim_named(pod.namespace, entry.claim) for entry in pod.claims if entry.claim
        )
        return [cached for cached in found if cached is not None]

    def gone(self) -> dict[str, int | None]:
        """UIDs of deleted objects, oldest first, with the revision up to which they were; None: it
        is unknown."""
        return dict(self._gone)

    def is_gone(self, uid: str) -> bool:
        """Whether an object was deleted."""
        return uid in self._gone

    def remember_deleted(self, uid: str, revision: int | None) -> None:
        """Remember a deleted object, so that a late response does not restore it."""
        self._gone[uid] = self._gone.get(uid) if revision is None else revision
        if len(self._gone) > _REMEMBERED_GONE:
            self._gone.popitem(last=False)

    def restore_gone(self, gone: Mapping[str, int | None]) -> None:
        """Restore what ``gone`` returned."""
        self._gone = OrderedDict(gone)
