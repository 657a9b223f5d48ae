"""How devices go from dray to kube-scheduler and back: never both on one device. Pure.

To kube-scheduler: the node leaves the pool's decision log first, as one that changes pools does,
and only then loses the owner taint. To dray: the taint comes first, and dray decides only after a
quarantine, because the API server checks no capacity: an allocation that kube-scheduler had in
flight may still land (docs/adr/0018-owners-change-node-by-node.md).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from dray.domain.names import DRIVER, OWNER_DRAY, OWNER_KUBE_SCHEDULER, OWNER_TAINT
from dray.domain.pods import Pool
from dray.kube.ports import POOLS, Object
from dray.messages.facts import NodeObserved
from dray_claim_controller.domains.rules import recorded
from dray_claim_controller.domains.stored_status import stored_status
from dray_claim_controller.observe.membership import Place, place
from dray_claim_controller.observe.picture import Picture
from dray_claim_controller.observe.seen import SeenClaim


@dataclass(frozen=True, slots=True)
class Recall:
    """What the way back to dray depends on."""

    now_unix_s: float = 0.0
    quarantine_s: float = 60.0
    keeps_taints: bool = True
    """Whether the API server keeps device taints."""


@dataclass(frozen=True, slots=True)
class Movement:
    """What beside the wish decides where a node is."""

    published: NodeObserved | None
    left: Mapping[tuple[str, str], int]
    domains: Collection[str]
    recall: Recall
    buried: NodeObserved | None = None
    """What was last said of a node of this name that is gone."""


def whereabouts(picture: Picture, node: str, wanted: Pool | None, by: Movement) -> Place:
    """Where the node's next fact puts it, and in whose hands its devices are."""
    published = by.published
    if published is None and not _was_kube_schedulers(by.buried):
        return _first(picture, node, wanted)
    if published is None or _was_kube_schedulers(published):
        since_unix_s = published.recalled_unix_s if published and published.quarantined else None
        return _quarantined(picture, node, wanted, since_unix_s, by.recall)
    name = "" if wanted is None else wanted.name
    handed_over = _is_kube_schedulers(wanted)
    revision = published.revision
    where = place(name, published.node, revision, by.left, by.domains, handed_over=handed_over)
    if handed_over or not where.pool:
        return where
    return replace(where, recalled_unix_s=published.recalled_unix_s)


def former_owner(pool: Object) -> str:
    """Who allocated the pool's devices when its status was last written."""
    return stored_status(pool).get("owner") or OWNER_DRAY


def _was_kube_schedulers(fact: NodeObserved | None) -> bool:
    """Whether kube-scheduler had the node's devices, or may still have something in flight. Of a
    node that went and came back, too: its cards are the same devices."""
    if fact is None:
        return False
    return fact.quarantined or bool(fact.node.pool and fact.node.owner == OWNER_KUBE_SCHEDULER)


def _is_kube_schedulers(pool: Pool | None) -> bool:
    return pool is not None and pool.owner == OWNER_KUBE_SCHEDULER


def _first(picture: Picture, node: str, wanted: Pool | None) -> Place:
    """Nothing was published of the node: it is new, or the facts were lost while its pool may
    have been about to change hands; what the pool's status remembers says in whose they were."""
    if wanted is None:
        return Place("")
    pool = picture.plain[POOLS.plural][wanted.name]
    former = former_owner(pool)
    if _is_kube_schedulers(wanted):
        if (
            former == OWNER_KUBE_SCHEDULER
            or not recorded(pool).epoch
            or not _has_devices(picture, node)
        ):
            return Place(wanted.name)
        return Place("", wanted.name, picture.node_revision.get(node, 0))
    if former == OWNER_KUBE_SCHEDULER and _has_devices(picture, node):
        return Place("", quarantined=True)
    return Place(wanted.name)


def _quarantined(
    picture: Picture, node: str, wanted: Pool | None, since_unix_s: float | None, recall: Recall
) -> Place:
    if wanted is not None and _is_kube_schedulers(wanted):
        return Place(wanted.name)
    if not _is_out_of_reach(picture, node, recall):
        return Place("", quarantined=True)
    since_unix_s = recall.now_unix_s if since_unix_s is None else since_unix_s
    if recall.now_unix_s - since_unix_s < recall.quarantine_s:
        return Place("", quarantined=True, recalled_unix_s=since_unix_s)
    if wanted is None:
        return Place("")
    return Place(wanted.name, recalled_unix_s=since_unix_s)


def _is_out_of_reach(picture: Picture, node: str, recall: Recall) -> bool:
    """Whether kube-scheduler begins no further allocation of the node's devices."""
    if recall.keeps_taints:
        return _is_tainted(picture, node)
    return not any(_may_be_allocated(picture, seen) for seen in picture.claims.values())


def _has_devices(picture: Picture, node: str) -> bool:
    return bool(picture.cards.devices_of(DRIVER, node))


def _is_tainted(picture: Picture, node: str) -> bool:
    """Whether every device that the node publishes carries the owner taint."""
    return all(
        any(taint.key == OWNER_TAINT for taint in device.taints)
        for device in picture.cards.devices_of(DRIVER, node)
    )


def _may_be_allocated(picture: Picture, seen: SeenClaim) -> bool:
    """Whether kube-scheduler may still allocate devices to the claim, where no taint keeps it
    away: one that somebody wrote, or of a pod that it has in hand."""
    claim = seen.claim
    if not seen.ours or claim.allocation is not None or claim.deleting:
        return False
    if not claim.pod_uid:
        return True
    pod = picture.pods.get(claim.pod_uid)
    if pod is None or pod.pod is None or pod.terminal:
        return False
    return pod.pod.binder == OWNER_KUBE_SCHEDULER and not pod.pod.gated


def home(fact: NodeObserved, wanted: Pool | None) -> str:
    """The pool whose node it is for people, also while its devices change hands."""
    if fact.node.pool or wanted is None:
        return fact.node.pool
    at_home = fact.quarantined or fact.node.leaving == wanted.name
    return wanted.name if at_home else ""


def is_on_its_way(fact: NodeObserved, pool: Pool) -> bool:
    """Whether the node's devices are not in the hands yet in which the pool wants them."""
    return fact.node.pool != pool.name or fact.node.owner != pool.owner
