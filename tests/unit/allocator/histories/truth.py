"""The cluster as it is: claims, pods, nodes and devices, with the facts and logs about them."""

from random import Random
from typing import Any

from msgspec.structs import replace

from dray.api import names
from dray.api.claims import Claim
from dray.api.devices import DeviceClass, Taint
from dray.api.pods import Pod, Pool
from dray.messages.decisions import AnyRecord, Decided, NodeLeft, Opened
from dray.messages.facts import (
    ClaimObserved,
    DeviceClassObserved,
    DomainObserved,
    Fact,
    NodeObserved,
    PodObserved,
    PoolObserved,
    SliceObserved,
    Synced,
    Tick,
)
from dray_allocator.values.events import Send

SICK = Taint("example.com/sick", "", "NoSchedule")
FLAWS = ("", "tainted", "without", "partial", "deleted")
"""What may be wrong with a node's slices."""
KINDS = ("claim", "pod", "node", "slice")
"""Of facts whose watch may be behind."""
POOLS = ("a", "b")
NODES = ("n0", "n1")


class Truth:
    """The true state of the cluster, and what the executor makes of decisions.

    Its nodes have one card each, of which pods want shares, or all of it.
    """

    def __init__(self, make: Any) -> None:
        self.make = make
        """Has ``a_node``, ``a_card``, ``a_slice``, ``a_pod``, ``a_claim`` and ``ask``."""
        self.late: dict[str, list[Fact]] = {}
        """By kind, facts that a watch which is behind has not brought yet."""
        self.facts: list[Fact] = []
        self.logs: dict[str, list[AnyRecord]] = {pool: [] for pool in POOLS}
        self.last: dict[str, object] = dict.fromkeys(POOLS)
        """Identity of each log's last record."""
        self.claims: dict[str, Claim] = {}
        self.pods: dict[str, Pod] = {}
        self.membership = dict.fromkeys(NODES, "a")
        self.leaving: dict[str, tuple[str, str, int]] = {}
        self.was = dict.fromkeys(NODES, "")
        self.former: dict[str, tuple[str, ...]] = dict.fromkeys(NODES, ())
        self.executed = dict.fromkeys(POOLS, 0)
        self.running: list[tuple[str, int]] = []
        """Executions begun and not finished: pod and attempt; they may sleep for ever."""
        self.decided: dict[tuple[str, int], object] = {}
        self.flaws = dict.fromkeys(NODES, "")
        self.gone_nodes: dict[str, None] = {}
        self.generation = 1
        self.commands: list[Send] = []
        self.now_unix_s = 1000.0
        self.revision = 0
        self.count = 0

    def configure(self) -> None:
        """Pools with a log each, two nodes with their devices."""
        self.see(DeviceClassObserved(revision=1, device_class=DeviceClass(names.DEVICE_CLASS)))
        for pool in POOLS:
            self.see(PoolObserved(revision=1, pool=Pool(pool, "u")))
            self.logs[pool].append(
                Opened(domain=pool, epoch=1, writer="c", facts_sequence=0, now_unix_s=0.0)
            )
            self.see(DomainObserved(revision=1, domain=pool, epoch=1))
        for node in NODES:
            self.publish_devices(node)
            self.publish_node(node)
        self.see(Synced(revision=1, instance="c"))
        self.pass_time(Random(0))

    def see(self, fact: Fact) -> None:
        """To be read by everybody, unless the watch of its kind is behind."""
        self.late.get(fact.NAME, self.facts).append(fact)

    def fall_behind(self, random: Random) -> None:
        """What is seen of one kind stays away for a while: the others overtake it."""
        self.late.setdefault(random.choice(KINDS), [])

    def come_up(self, random: Random) -> None:
        """A watch that was behind brings everything, in its order."""
        if self.late:
            self.facts += self.late.pop(random.choice(list(self.late)))

    def next(self) -> int:
        self.revision += 1
        return self.revision

    def stored(self) -> list[int]:
        """The sequences of the last fact about each object: the stream keeps no others."""
        last = {(type(fact), fact.ids()): at for at, fact in enumerate(self.facts, 1)}
        return sorted(last.values())

    def publish_node(self, node: str) -> None:
        leaving, _, since = self.leaving.get(node, ("", "", 0))
        pool = self.membership[node]
        made = self.make.a_node(node, pool, leaving=leaving, leaving_since=since)
        self.former[node] = tuple(
            one
            for one in POOLS
            if one != pool
            and (one in self.former[node] or one == self.was[node])
            and any(_may_be_on(node, claim) for claim in self.claims.values() if claim.pool == one)
        )
        self.was[node] = pool or leaving
        self.see(
            NodeObserved(
                revision=self.next(),
                node=made,
                former=self.former[node],
                counted_pods=tuple(uid for uid in self.pods if self.runs_on(uid, node)),
                deleted=node in self.gone_nodes,
            )
        )

    def runs_on(self, pod_uid: str, node: str) -> bool:
        """Whether a pod got what it wants on a node."""
        mine = (one for one in self.claims.values() if one.pod_uid == pod_uid and one.allocation)
        return any(_may_be_on(node, claim) for claim in mine)

    def sum_up(self, random: Random) -> None:
        """The pods of a node are counted again, before or after their facts."""
        self.publish_node(random.choice(NODES))

    def publish_devices(self, node: str, flaw: str = "") -> None:
        """Its slices, in a new generation; ``flaw``: what is not as it should be."""
        card = self.make.a_card(f"{node}-gpu")
        if flaw == "tainted":
            card = replace(card, taints=(*card.taints, SICK))
        made = self.make.a_slice(node, [] if flaw == "without" else [card], self.generation)
        if flaw == "partial":
            made = replace(made, slice_count=2)
        self.see(SliceObserved(revision=self.next(), slice=made, deleted=flaw == "deleted"))

    def change_slices(self, random: Random) -> None:
        """A device becomes unhealthy, goes or comes back, or a pool of devices is written half."""
        self.generation += 1
        mended = [node for node in NODES if self.flaws[node]]
        for node in mended or [random.choice(NODES)]:
            self.flaws[node] = "" if mended else random.choice(FLAWS)
            self.publish_devices(node, self.flaws[node])

    def lose_node(self, random: Random) -> None:
        """A node goes, whatever runs on it, or comes back. One that comes back leaves no pool."""
        node = next(iter(self.gone_nodes), random.choice(NODES))
        if node in self.gone_nodes:
            del self.gone_nodes[node]
            if (leaving := self.leaving.pop(node, None)) is not None:
                self.membership[node] = leaving[1]
        else:
            self.gone_nodes[node] = None
        self.publish_node(node)

    def publish_claim(self, claim: Claim, deleted: bool = False) -> None:
        if deleted:
            del self.claims[claim.uid]
        else:
            self.claims[claim.uid] = claim
        self.see(ClaimObserved(revision=self.next(), claim=claim, deleted=deleted))

    def submit(self, random: Random) -> None:
        """A pod and its claim appear."""
        self.count += 1
        uid, pool = f"p{self.count}", random.choice(POOLS)
        self.pods[uid] = self.make.a_pod(uid, pool, priority=random.randrange(3))
        self.publish_claim(self.a_claim(uid, pool, random))
        self.see(PodObserved(revision=self.next(), pod=self.pods[uid]))

    def a_claim(self, uid: str, pool: str, random: Random) -> Claim:
        """What a pod wants."""
        ask = self.make.ask("100", random.choice(["10Gi", "16Gi", "40Gi"]))
        claim: Claim = self.make.a_claim(uid, ask, pool)
        return claim

    def delete_pod(self, random: Random) -> None:
        """A pod goes."""
        if self.pods:
            pod = self.pods.pop(random.choice(list(self.pods)))
            self.see(PodObserved(revision=self.next(), pod=pod, deleted=True))

    def delete_claim(self, random: Random) -> None:
        """A claim goes, be its pod there or not."""
        if self.claims:
            self.publish_claim(random.choice(list(self.claims.values())), deleted=True)

    def clear(self, random: Random) -> None:
        """kube-scheduler clears an allocation, or the executor withdraws and voids it."""
        if allocated := [claim for claim in self.claims.values() if claim.allocation]:
            claim = random.choice(allocated)
            void = claim.decision if random.random() < 0.5 else claim.void
            self.publish_claim(replace(claim, allocation=None, void=void))

    def pass_time(self, random: Random) -> None:
        """A tick."""
        self.now_unix_s += random.choice([1.0, 1.0, 7.0, 31.0])
        self.see(Tick(revision=self.next(), now_unix_s=self.now_unix_s))

    def move(self, random: Random) -> None:
        """A node is labelled for another pool: first it is in none."""
        node, pool = random.choice(NODES), random.choice(POOLS)
        before = self.membership[node]
        if before and before != pool and node not in self.gone_nodes:
            self.membership[node] = ""
            self.leaving[node] = (before, pool, self.revision + 1)
            self.publish_node(node)

    def moved(self, random: Random) -> None:
        """The claim-controller saw in the old pool's log that the node left."""
        leaving = [node for node in self.leaving if node not in self.gone_nodes]
        if not leaving:
            return
        node = random.choice(leaving)
        old, new, since = self.leaving[node]
        if any(
            isinstance(record, NodeLeft) and record.node == node and record.node_revision >= since
            for record in self.logs[old]
        ):
            del self.leaving[node]
            self.membership[node] = new
            self.publish_node(node)

    # The executor.

    def begin(self) -> None:
        """It reads the logs on."""
        for pool, log in self.logs.items():
            for record in log[self.executed[pool] :]:
                for pod in record.pods if isinstance(record, Decided) else ():
                    for made in pod.claims:
                        self.decided[made.uid, made.attempt] = made.allocation
                        self.running.append((made.uid, made.attempt))
            self.executed[pool] = len(log)

    def commit(self, random: Random) -> None:
        """Some execution, perhaps long asleep, goes on with its checks and its write."""
        self.begin()
        if not self.running:
            return
        at = random.randrange(len(self.running))
        uid, attempt = self.running[at]
        if random.random() < 0.5:
            del self.running[at]
        claim = self.claims.get(uid)
        if claim is None or claim.allocation is not None:
            return
        if claim.void >= attempt or claim.decision > attempt:
            return
        self.publish_claim(replace(claim, allocation=self.decided[uid, attempt], decision=attempt))

    def void(self, random: Random) -> None:
        """A command to void arrives, perhaps late or twice."""
        if not self.commands:
            return
        command = random.choice(self.commands[-5:]).command
        claim = self.claims.get(command.claim_uid)
        if claim is not None and claim.allocation is None:
            self.publish_claim(replace(claim, void=max(claim.void, command.attempt)))


def _may_be_on(node: str, claim: Claim) -> bool:
    """As the claim-controller says it: a claim of a pool that the node has left."""
    return claim.allocation is None or any(d.id.pool == node for d in claim.allocation.devices)
