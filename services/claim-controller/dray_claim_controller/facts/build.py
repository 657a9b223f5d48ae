"""Builds facts from the cache. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from dray.api.devices import DeviceClass, DeviceTaintRule, ResourceSlice, Taint
from dray.api.groups import GroupQueue
from dray.api.names import (
    BASE_TEMPLATE,
    DEDICATED_TAINT,
    DERIVED_FROM_LABEL,
    OWNER_DRAY,
    OWNER_KUBE_SCHEDULER,
    QOS_LABEL,
    QOS_LEVELS,
    TEMPLATE_LABEL,
)
from dray.api.placement import BINPACK, policy_placement
from dray.api.pods import Node, Policy, Pool
from dray.kube.convert import revision_of
from dray.kube.ports import (
    CLASSES,
    NODES,
    POLICIES,
    POOLS,
    PRIORITY_CLASSES,
    QUEUES,
    TAINT_RULES,
    TEMPLATES,
    Object,
)
from dray.messages.facts import (
    ClaimObserved,
    DeviceClassObserved,
    Fact,
    GroupObserved,
    NodeObserved,
    PodObserved,
    PolicyObserved,
    PoolObserved,
    PriorityClassObserved,
    QueueObserved,
    SliceObserved,
    TaintRuleObserved,
    TemplateObserved,
)
from dray_claim_controller.cache.cached_objects import CachedPod, FactKey
from dray_claim_controller.cache.group_members import key_from
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.resources import read
from dray_claim_controller.facts.groups import group_fact
from dray_claim_controller.facts.handover import (
    MembershipInputs,
    NodeMembership,
    QuarantineTerms,
    next_membership,
)
from dray_claim_controller.facts.membership import assigned_pool
from dray_claim_controller.facts.pool_dependencies import dependent_pools, former_pools


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """What a node's fact depends on besides the cache."""

    published: NodeObserved | None = None
    """The node's last fact, if it is not a tombstone."""
    left: Mapping[tuple[str, str], int] = field(default_factory=dict)
    closing: tuple[str, ...] = ()
    """Domains of deleted pools whose decisions are not all void yet."""
    recall: QuarantineTerms = field(default_factory=QuarantineTerms)
    tombstone: NodeObserved | None = None
    """The tombstone of a node of this name."""


def key_of(fact: Fact) -> FactKey:
    """The key of a fact. All facts about one object share it, even if their subjects differ."""
    match fact:
        case ClaimObserved(claim=claim):
            return FactKey(fact.NAME, claim.uid)
        case PodObserved(pod=pod):
            return FactKey(fact.NAME, pod.uid)
        case _:
            return FactKey(fact.NAME, "/".join(fact.ids()))


def uid_of(fact: Fact) -> str:
    """UID of the object if facts with one key may be about different objects; else empty."""
    match fact:
        case NodeObserved(node=node):
            return node.uid
        case SliceObserved(slice=observed):
            return observed.uid
        case PoolObserved(pool=pool):
            return pool.uid
        case PolicyObserved(policy=policy):
            return policy.uid
        case GroupObserved(group=group):
            return group.uid
        case QueueObserved(queue=queue):
            return queue.uid
        case _:
            return ""


def fact_of(cache: ObjectCache, key: FactKey, known: NodeHistory) -> Fact | None:
    """The fact about ``key``, or None if there is nothing (any more) to say."""
    match key.kind:
        case "claim":
            cached = cache.claims.get(key.identity)
            # Allocated claims of other drivers or owners count, too: their devices are not free.
            if cached is None or not (cached.ours or cached.claim.allocation is not None):
                return None
            return ClaimObserved(
                revision=cached.claim.resource_version,
                claim=cached.claim,
                beside=dependent_pools(cache, cached.claim),
                given_up=cache.given_up.get(key.identity),
            )
        case "pod":
            pod = cache.pods.get(key.identity)
            if pod is None or pod.pod is None:
                return None
            return PodObserved(
                revision=pod.pod.resource_version,
                pod=pod.pod,
                beside=dependent_pools(cache, pod.pod),
            )
        case "slice":
            if key.identity not in cache.devices.slices:
                return None
            observed, revision = cache.devices.slices[key.identity]
            if holder := cache.devices.possible_holder(observed):
                observed = _withheld(observed, holder)
            return SliceObserved(revision=revision, slice=observed)
        case "group":
            return group_fact(cache, key_from(key))
        case "node":
            return _node_fact(cache, key.identity, known)
        case _:
            return _plain_fact(cache, key)


_WITHHELD = "a possible holder, ResourceClaim "


def is_withheld(observed: ResourceSlice) -> bool:
    """Whether a slice was published with all its devices withheld."""
    return any(why.startswith(_WITHHELD) for one in observed.devices for why in one.unsupported)


def _withheld(observed: ResourceSlice, holder: str) -> ResourceSlice:
    """The slice with all its devices withheld, because ``holder`` may hold any of them."""
    why = f"{_WITHHELD}{holder}, whose allocation can't be read completely"
    devices = (replace(device, unsupported=(why,)) for device in observed.devices)
    return replace(observed, devices=tuple(devices))


def _plain_fact(cache: ObjectCache, key: FactKey) -> Fact | None:
    resource = {
        "deviceclass": CLASSES,
        "taintrule": TAINT_RULES,
        "pool": POOLS,
        "policy": POLICIES,
        "template": TEMPLATES,
        "priorityclass": PRIORITY_CLASSES,
        "queue": QUEUES,
    }.get(key.kind)
    obj = None if resource is None else cache.plain[resource.plural].get(key.identity)
    if resource is None or obj is None:
        return None
    if resource is TEMPLATES:
        return template_fact(obj) if is_base_template(obj) else None
    revision = revision_of(obj)
    match read(resource, obj)[0]:
        case int() as value:
            return PriorityClassObserved(
                revision=revision,
                name=key.identity,
                value=value,
                preemption_policy=obj.get("preemptionPolicy") or "",
            )
        case GroupQueue() as queue:
            return QueueObserved(revision=revision, queue=queue)
        case DeviceClass() as known:
            return DeviceClassObserved(revision=revision, device_class=known)
        case DeviceTaintRule() as rule:
            return TaintRuleObserved(revision=revision, rule=rule)
        case Pool() as pool:
            return PoolObserved(revision=revision, pool=pool)
        case Policy() as policy:
            return PolicyObserved(revision=revision, policy=policy)
        case _:
            return None


def is_base_template(obj: Object) -> bool:
    """Whether a template is one that users write for dray, not one derived from it."""
    labels = obj["metadata"].get("labels") or {}
    if DERIVED_FROM_LABEL in labels:
        return False
    return TEMPLATE_LABEL in labels or obj["metadata"]["name"] == BASE_TEMPLATE


def template_fact(obj: Object) -> TemplateObserved:
    """A base template with what the webhook needs of it."""
    metadata, spec = obj["metadata"], dict(obj.get("spec") or {})
    if isinstance(of_claims := spec.get("metadata"), dict):
        # Derived templates have no annotations, and annotations of other users may hold secrets.
        spec["metadata"] = {name: of_claims[name] for name in of_claims if name == "labels"}
    return TemplateObserved(
        revision=revision_of(obj),
        namespace=metadata["namespace"],
        name=metadata["name"],
        labels=dict(metadata.get("labels") or {}),
        spec=spec,
    )


def _node_fact(cache: ObjectCache, name: str, known: NodeHistory) -> NodeObserved | None:
    version = cache.plain[NODES.plural].version(name)
    if version is None:
        return None
    pools = cache.pool_selectors.pools()
    bare = cache.nodes.get(name)
    if _stays(cache, bare, pools, known.published):
        assert known.published is not None
        return _with_use(cache, known.published)
    if bare is None:
        return None
    wanted = assigned_pool(cache, name)
    domains = {*pools, *known.closing} if known.closing else pools
    movement = MembershipInputs(known.published, known.left, domains, known.recall, known.tombstone)
    where = next_membership(cache, name, wanted, movement)
    node = replace(
        _between_owners(bare, wanted, where) or _in_pool(bare, pools.get(where.pool)),
        leaving=where.leaving,
        leaving_since=where.leaving_since,
        assigned_pool="" if wanted is None else wanted.name,
    )
    fact = NodeObserved(
        revision=cache.node_revision.get(name, version.revision),
        node=node,
        quarantined=where.quarantined,
        recalled_unix_s=where.recalled_unix_s,
        device_order=_device_order(cache, pools.get(where.pool)),
        former=former_pools(cache, node, known.published or known.tombstone),
        also_selected_by=tuple(
            one for one in cache.pool_selectors.of_node(name) if one != node.assigned_pool
        ),
    )
    return _with_use(cache, fact)


def _stays(
    cache: ObjectCache,
    bare: Node | None,
    pools: Mapping[str, Pool],
    published: NodeObserved | None,
) -> bool:
    """Whether a node stays as it was last published: it can't be read, or its pool can't."""
    if published is None:
        return False
    its_pools = (published.node.pool, published.node.leaving)
    return bare is None or any(
        pool in cache.plain[POOLS.plural] and pool not in pools for pool in its_pools
    )


def _with_use(cache: ObjectCache, fact: NodeObserved) -> NodeObserved:
    """The fact with the resources of the node that its pods use now."""
    node = fact.node
    running = [cached for cached in cache.pods_on(node.name) if not cached.terminal]
    is_full = any(cached.fills_node for cached in running)
    return msgspec.structs.replace(
        fact,
        revision=max(fact.revision, cache.node_revision.get(node.name, 0)),
        node=replace(
            node,
            used_cpu_milli=max(
                sum(cached.cpu_milli for cached in running), is_full * node.cpu_milli
            ),
            used_memory_bytes=max(
                sum(cached.memory_bytes for cached in running), is_full * node.memory_bytes
            ),
            used_pods=max(len(running), is_full * node.pods),
            used_resources=_sums(running),
            used_ports=tuple(sorted({port: None for cached in running for port in cached.ports})),
        ),
        counted_pods=tuple(sorted(cached.uid for cached in running if cached.pod is not None)),
    )


def _sums(pods: Sequence[CachedPod]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for cached in pods:
        for name, amount in cached.resources.items():
            sums[name] = sums.get(name, 0) + amount
    return dict(sorted(sums.items()))


def _between_owners(node: Node, wanted: Pool | None, where: NodeMembership) -> Node | None:
    """The node while its devices change owners within its pool, else None. Nobody allocates its
    devices then, but it keeps the pool's properties, such as its ratios, so that its devices still
    have enough capacity for what holds them."""
    if wanted is None or where.pool or not (where.quarantined or where.leaving == wanted.name):
        return None
    return replace(_in_pool(node, wanted), pool="", owner=OWNER_DRAY)


def _device_order(cache: ObjectCache, pool: Pool | None) -> str:
    """The order of devices with which kube-scheduler comes close to the pool's placement."""
    if pool is None or pool.owner != OWNER_KUBE_SCHEDULER:
        return ""
    obj = cache.plain[POLICIES.plural].get(pool.template)
    placement = policy_placement(None if obj is None else read(POLICIES, obj)[0])
    return BINPACK if placement.is_aware else placement.gpu


def _in_pool(node: Node, pool: Pool | None) -> Node:
    if pool is None:
        return replace(node, pool="")
    label = node.labels.get(QOS_LABEL, "")
    return replace(
        node,
        pool=pool.name,
        owner=pool.owner,
        qos=label if label in QOS_LEVELS else pool.default_qos,
        tflops_ratio=pool.tflops_ratio,
        vram_ratio=pool.vram_ratio,
        enforcement=pool.enforcement,
        unhealthy_effect=pool.unhealthy_effect,
        # dray binds by itself only if the taint already keeps other binders away.
        dedicated=pool.dedicated and Taint(DEDICATED_TAINT, pool.name, "NoSchedule") in node.taints,
    )
