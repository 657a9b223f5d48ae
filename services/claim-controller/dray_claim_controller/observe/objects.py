"""All observed objects: how they are kept, found and forgotten. Pure."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from dray.domain.claims import GivenUp
from dray.domain.pods import Pod, Pool
from dray.kube.ports import Object
from dray_claim_controller.observe.cards import Cards
from dray_claim_controller.observe.kinds import WATCHED
from dray_claim_controller.observe.seen import SeenClaim, SeenPod
from dray_claim_controller.observe.users import Users

_REMEMBERED_GONE = 10_000


class Objects:
    """Claims and pods by UID, by name and by node; other kinds by name; and who was deleted."""

    def __init__(self) -> None:
        self.claims: dict[str, SeenClaim] = {}
        self.given_up: dict[str, GivenUp] = {}
        """By UID of their claims, attempts that are given up and not void by annotation."""
        self.pods: dict[str, SeenPod] = {}
        self.cards = Cards()
        self.plain: dict[str, dict[str, Object]] = {resource.plural: {} for resource in WATCHED}
        """Objects of the other kinds, by plural and ``namespace/name``."""
        self.pools: tuple[dict[str, Object], Mapping[str, Pool]] | None = None
        """The pools as they were last read, and the objects they were read from."""
        self.selecting: tuple[
            Mapping[str, Pool], dict[str, tuple[dict[str, str], tuple[str, ...]]]
        ] = ({}, {})
        """Of these pools, those that select a node, by the node's name and for its labels."""
        self.users = Users()
        self.foreign_users = Users()
        """Pods that are not ours."""
        self._foreign_pods: dict[str, Pod] = {}
        self.repelling: dict[str, None] = {}
        """Pods that keep others away, by required anti-affinity."""
        self._claim_uids: dict[tuple[str, str], str] = {}
        self._pods_of_node: dict[str, dict[str, None]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()

    def keep_claim(self, seen: SeenClaim) -> None:
        """Keep a claim in place of what was known of it."""
        self.claims[seen.claim.uid] = seen
        self._claim_uids[seen.claim.namespace, seen.claim.name] = seen.claim.uid

    def forget_claim(self, uid: str) -> SeenClaim | None:
        """Forget a claim; what was known of it."""
        known = self.claims.pop(uid, None)
        self.given_up.pop(uid, None)
        if known is not None:
            name = (known.claim.namespace, known.claim.name)
            if self._claim_uids.get(name) == uid:
                del self._claim_uids[name]
        return known

    def keep_pod(self, seen: SeenPod) -> None:
        """Keep a pod in place of what was known of it."""
        known = self.pods.get(seen.uid)
        if known is not None and known.node != seen.node:
            self._pods_of_node.get(known.node, {}).pop(seen.uid, None)
        self.pods[seen.uid] = seen
        if seen.repels:
            self.repelling[seen.uid] = None
        if seen.node:
            self._pods_of_node.setdefault(seen.node, {})[seen.uid] = None

    def forget_pod(self, uid: str) -> SeenPod | None:
        """Forget a pod; what was known of it."""
        known = self.pods.pop(uid, None)
        if known is not None:
            self.repelling.pop(uid, None)
            if known.node:
                self._pods_of_node.get(known.node, {}).pop(uid, None)
        return known

    def note_foreign(self, uid: str, pod: Pod | None) -> None:
        """The pod of this UID is not ours, and refers to claims; None: it is ours, refers to none,
        or is gone."""
        self.foreign_users.put(self._foreign_pods.pop(uid, None), pod)
        if pod is not None:
            self._foreign_pods[uid] = pod

    def claim_named(self, namespace: str, name: str) -> SeenClaim | None:
        """A claim by name."""
        uid = self._claim_uids.get((namespace, name))
        return None if uid is None else self.claims.get(uid)

    def pods_on(self, node: str) -> list[SeenPod]:
        """All pods bound to a node, ended ones included."""
        return [self.pods[uid] for uid in self._pods_of_node.get(node, ())]

    def our_pods(self) -> list[SeenPod]:
        """Pods that use claims of ours."""
        return [seen for seen in self.pods.values() if seen.pod is not None]

    def claims_of(self, pod: Pod) -> list[SeenClaim]:
        """The pod's claims of ours that exist."""
        return [seen for seen in self.every_claim_of(pod) if seen.ours]

    def every_claim_of(self, pod: Pod) -> list[SeenClaim]:
        """The pod's claims that exist, those of other drivers among them."""
        found = (
            self.claim_named(pod.namespace, entry.claim) for entry in pod.claims if entry.claim
        )
        return [seen for seen in found if seen is not None]

    def gone(self) -> list[str]:
        """UIDs of objects that were seen to be deleted, oldest first."""
        return list(self._gone)

    def is_gone(self, uid: str) -> bool:
        """Whether an object was seen to be deleted."""
        return uid in self._gone

    def bury(self, uid: str) -> None:
        """Remember that an object was deleted, so that a late word of it is not believed."""
        self._gone[uid] = None
        if len(self._gone) > _REMEMBERED_GONE:
            self._gone.popitem(last=False)

    def restore_gone(self, uids: Iterable[str]) -> None:
        """Take what was deleted out of a recording."""
        self._gone = OrderedDict.fromkeys(uids)
