"""Random histories of a small cluster, through the allocator's real decisions.

A fenced log and a facts stream stand in for the bus, and an executor for the
claim-controller: it commits late, never, or voids. Two to four replicas all believe they serve, die
and begin again; claims, pods, slices and nodes come, change and go; facts come late, twice, and in
another order than the objects changed.
"""

import dataclasses
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from dray.domain import names
from dray.domain.claims import AllocatedDevice, Claim
from dray.domain.devices import DeviceClass, DeviceId, Taint
from dray.domain.pods import Pod, Pool
from dray.domain.quantities import parse_quantity
from dray.kube.convert import claim_from, slice_from
from dray.kube.convert_dra_slices import slice_in_full
from dray.messages.decisions import (
    AnyRecord,
    Decided,
    NodeLeft,
    Opened,
    decode_record,
    encode_record,
)
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
from dray_allocator.events import (
    Append,
    AppendFailed,
    Attend,
    Continue,
    EarlierFact,
    EarlierFactsRead,
    FactSeen,
    Follow,
    Oversold,
    RecordSeen,
    Send,
    Serve,
    Unfollow,
)
from dray_allocator.fit.ledger import Ledger
from dray_allocator.fit.search import oversold
from dray_allocator.handle import handle, recompute
from dray_allocator.rules import Rules
from dray_allocator.state import AllocatorState

SICK = Taint("example.com/sick", "", "NoSchedule")
FLAWS = ("", "tainted", "without", "partial", "deleted")
NVIDIA = "gpu.nvidia.com"
KINDS = ("claim", "pod", "node", "slice")
POOLS = ("a", "b")
NODES = ("n0", "n1")
REPLICAS = ("one", "two", "three", "four")
CAPACITY = {"virtual_tflops": "312", "virtual_vram": "40Gi"}


class Replica:
    """A replica and how far it has read."""

    def __init__(self, name: str, rules: Rules) -> None:
        self.name = name
        self.state = AllocatorState(dataclasses.replace(rules, writer=name))
        self.facts = 0
        self.records = dict.fromkeys(POOLS, 0)
        self.outbox: list[tuple[Append, object, object]] = []
        """Appends on their way to the bus, in order: each with its identity, and with that of
        the append it must follow."""
        self.last = dict.fromkeys(POOLS, object())
        self.checked = -1
        """The ledger's version that was looked at last."""


class Cluster:
    """The truth (claims, logs, facts in order) and replicas that learn of it late.

    Its nodes have one card each, of which pods want shares, or all of it.
    """

    RULES = Rules(exclusion_s=5, checkpoint_interval_s=60)

    def __init__(self, make: type, replicas: int = 2) -> None:
        self.make = make
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
        self.replicas = [Replica(name, self.RULES) for name in REPLICAS[:replicas]]
        self.dead: list[Replica] = []
        """What they have sent may still arrive."""
        self.commands: list[Send] = []
        self.now_unix_s = 1000.0
        self.revision = 0
        self.count = 0
        self.configure()

    def configure(self) -> None:
        """Pools with a log each, two nodes with their devices, facts complete."""
        self.see(
            DeviceClassObserved(revision=1, device_class=DeviceClass(names.DEVICE_CLASS)),
        )
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
        for replica in self.replicas:
            self.read_on(replica, lag=0)

    # The cluster.

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
        gone, former = node in self.gone_nodes, self.former[node]
        self.see(NodeObserved(revision=self.next(), node=made, former=former, deleted=gone))

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
        """A device falls ill, goes or comes back, or a pool of devices is written half."""
        self.generation += 1
        mended = [node for node in NODES if self.flaws[node]]
        for node in mended or [random.choice(NODES)]:
            self.flaws[node] = "" if mended else random.choice(FLAWS)
            self.publish_devices(node, self.flaws[node])

    def lose_node(self, random: Random) -> None:
        """A node goes, whatever runs on it, or comes back."""
        node = next(iter(self.gone_nodes), random.choice(NODES))
        if node in self.gone_nodes:
            del self.gone_nodes[node]
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

    # The replicas.

    def hand(self, replica: Replica, event: object) -> None:
        effects = handle(replica.state, event)
        while replica.state.unfinished:
            effects += handle(replica.state, Continue())
        for effect in effects:
            if isinstance(effect, Follow | Unfollow):
                replica.records[effect.domain] = 0
            elif isinstance(effect, Append):
                after = replica.last[effect.domain] if effect.chained else None
                replica.last[effect.domain] = object()
                replica.outbox.append((effect, replica.last[effect.domain], after))
            elif isinstance(effect, Send):
                self.commands.append(effect)
            assert not isinstance(effect, Oversold), effect

    def turn(self, random: Random) -> None:
        """A replica reads on, not always to the end, believes that it serves, and appends."""
        replica = random.choice(self.replicas)
        self.read_on(replica, random.choice([0, 0, 0, 1, 3]))
        for _ in range(random.choice([0, 1, 1, 9])):
            self.append(replica, answered=random.random() < 0.8)

    def restart(self, random: Random) -> None:
        """A replica dies, and another begins from what the bus holds."""
        at = random.randrange(len(self.replicas))
        self.dead = [*self.dead[-1:], self.replicas[at]]
        self.replicas[at] = fresh = Replica(self.replicas[at].name, self.RULES)
        for sequence in self.stored():
            more = sequence < len(self.facts)
            self.hand(fresh, FactSeen(sequence, self.facts[sequence - 1], more=more))
        fresh.facts = len(self.facts)

    def stored(self) -> list[int]:
        """The sequences of the last fact about each object: the stream keeps no others."""
        last = {(type(fact), fact.ids()): at for at, fact in enumerate(self.facts, 1)}
        return sorted(last.values())

    def read_on(self, replica: Replica, lag: int) -> None:
        """Everything but the last few facts; nobody stops the other replica."""
        self.read_facts(replica, lag)
        for pool in POOLS:
            self.read_log(replica, pool)
            domain = replica.state.domains.get(pool)
            if domain is not None and not domain.serving:
                self.hand(replica, Serve(pool, 1, len(self.logs[pool])))

    def listen(self, random: Random) -> None:
        """A replica reads one of the streams only, and some of it twice."""
        replica = random.choice(self.replicas)
        back = random.choice([0, 2, 5])
        if random.random() < 0.5:
            replica.facts = max(0, replica.facts - back)
            self.read_facts(replica, random.randrange(4))
        else:
            pool = random.choice(POOLS)
            replica.records[pool] = max(0, replica.records[pool] - back)
            self.read_log(replica, pool)

    def read_facts(self, replica: Replica, lag: int) -> None:
        for sequence in range(replica.facts + 1, len(self.facts) - lag + 1):
            self.hand(replica, FactSeen(sequence, self.facts[sequence - 1]))
            replica.facts = sequence

    def read_log(self, replica: Replica, pool: str) -> None:
        if pool not in replica.state.domains:
            return
        for sequence in range(replica.records[pool] + 1, len(self.logs[pool]) + 1):
            record = self.logs[pool][sequence - 1]
            self.hand(replica, RecordSeen(pool, 1, sequence, record))
            replica.records[pool] = sequence

    def late_append(self, random: Random) -> None:
        """A replica that has not read anything since its append goes on with it."""
        one = random.choice([*self.replicas, *self.dead])
        self.append(one, answered=random.random() < 0.5)

    def append(self, replica: Replica, answered: bool) -> None:
        """The oldest append reaches the bus; its answer may be lost."""
        if not replica.outbox:
            return
        one, identity, after = replica.outbox.pop(0)
        log = self.logs[one.domain]
        stale = one.expected_last != len(log) or after not in (None, self.last[one.domain])
        if not stale:
            self.last[one.domain] = identity
            log.append(decode_record(encode_record(one.record)))
        if (stale or not answered) and replica not in self.dead:
            self.hand(replica, AppendFailed(one.domain, 1, "stale or unknown"))

    # What must hold.

    def shares(self) -> dict[DeviceId, list[AllocatedDevice]]:
        """What is taken of each device by committed statuses, as they are; who only looks on as an
        administrator takes nothing."""
        found: dict[DeviceId, list[AllocatedDevice]] = {}
        for claim in self.claims.values():
            for share in claim.allocation.devices if claim.allocation else ():
                if not share.admin_access:
                    found.setdefault(share.id, []).append(share)
        return found

    def no_device_is_oversold(self) -> None:
        """Committed statuses never exceed a card."""
        for device, shares in self.shares().items():
            for key, total in CAPACITY.items():
                taken = sum(parse_quantity(one.consumed.get(key, "0")).nano for one in shares)
                assert taken <= parse_quantity(total).nano, (device, key)

    def counters_are_sums(self) -> None:
        """What a replica counts of each device is what its claims sum up to, and never less
        than nothing."""
        for replica in self.replicas:
            held, summed = replica.state.ledger, Ledger()
            if held.version == replica.checked:
                continue
            replica.checked = held.version
            for uid, allocation in held.claims():
                summed.set(uid, allocation)
            for node in NODES:
                for card in replica.state.fleet.of(node).cards:
                    use, again = held.of(card.id), summed.of(card.id)
                    assert (use.shares, use.whole) == (again.shares, again.whole)
                    assert min(use.shares, use.whole, *use.used.values(), 0) == 0
                    assert _something(use.used) == _something(again.used)

    def check_rebuilding(self) -> None:
        """With the logs lost, what claims' statuses say is what was held, without what was only
        reserved; read from the last fact of each object, as a new reader gets them."""
        rebuilt = AllocatorState(self.replicas[0].state.rules)
        for sequence in self.stored():
            handle(rebuilt, FactSeen(sequence, self.facts[sequence - 1], more=True))
        allocated = {
            uid: claim.allocation for uid, claim in self.claims.items() if claim.allocation
        }
        assert dict(rebuilt.ledger.claims()) == allocated
        for replica in self.replicas:
            held = dict(replica.state.ledger.claims())
            assert {uid: held.get(uid) for uid in allocated} == allocated
            reserved = {made.claim_uid for made in replica.state.reservations()}
            assert held.keys() - allocated.keys() <= reserved
            facts, again = replica.state.facts, rebuilt.facts
            assert (facts.claims, facts.pods, facts.nodes) == (
                again.claims,
                again.pods,
                again.nodes,
            )

    def check_replays(self) -> None:
        """From the streams alone, the same state and the same records follow."""
        while self.late:
            self.come_up(Random(0))
        for replica in self.replicas:
            self.catch_up(replica)
        fresh = Replica("fresh", self.RULES)
        self.catch_up(fresh)
        for node in NODES:
            for one in fresh.state.fleet.of(node).cards:
                assert oversold(fresh.state.ledger, one, one.id) == ""
        for replica in self.replicas:
            assert dict(replica.state.ledger.claims()) == dict(fresh.state.ledger.claims())
            for pool, domain in fresh.state.domains.items():
                assert replica.state.domains[pool].confirmed == domain.confirmed
        for pool in POOLS:
            self.replay(pool)

    def catch_up(self, replica: Replica) -> None:
        for sequence in range(replica.facts + 1, len(self.facts) + 1):
            handle(replica.state, FactSeen(sequence, self.facts[sequence - 1], more=True))
        for pool in POOLS:
            domain = replica.state.domains.get(pool)
            if domain is None:
                continue
            handle(replica.state, AppendFailed(pool, 1, "stopped"))
            for sequence, record in enumerate(self.logs[pool], 1):
                handle(replica.state, RecordSeen(pool, 1, sequence, record, more=True))

    def replay(self, pool: str) -> None:
        """Every decision is computed again from the facts and records before it.

        A node that came from another pool may hold what only that pool's log tells: such a
        decision is not compared, as ``dray replay`` compares none that is entangled.
        """
        state = AllocatorState(self.replicas[0].state.rules)
        elsewhere = self.nodes_of_other_logs(pool)
        facts = 0
        for sequence, record in enumerate(self.logs[pool], 1):
            while facts < record.facts_sequence:
                facts += 1
                handle(state, FactSeen(facts, self.facts[facts - 1], more=True))
            entangled = any(state.facts.serves(node, pool) for node in elsewhere)
            if isinstance(record, Decided) and not entangled:
                assert recompute(state, record) == record
            handle(state, RecordSeen(pool, 1, sequence, record, more=True))

    def nodes_of_other_logs(self, pool: str) -> set[str]:
        """Where another pool ever decided."""
        logs = (log for name, log in self.logs.items() if name != pool)
        decided = (record for log in logs for record in log if isinstance(record, Decided))
        return {pod.node for record in decided for pod in record.pods}


class LaneCluster(Cluster):
    """Its nodes have a second driver's devices, too: one that is given as a whole, one whose memory
    is shared out, and a card as a whole and in halves, which draw on the same counter. Only the
    structured lane decides about them, and about pods that want something of both drivers."""

    RULES = dataclasses.replace(Cluster.RULES, drivers=(names.DRIVER, NVIDIA))

    def configure(self) -> None:
        """See ``Cluster.configure``."""
        kind = DeviceClass(NVIDIA, (f'device.driver == "{NVIDIA}"',))
        self.see(DeviceClassObserved(revision=1, device_class=kind))
        super().configure()

    def publish_devices(self, node: str, flaw: str = "") -> None:
        """See ``Cluster.publish_devices``; both drivers' devices have the flaw."""
        super().publish_devices(node, flaw)
        devices = [] if flaw == "without" else [*THEIRS]
        if flaw == "tainted":
            sick = {"key": SICK.key, "effect": SICK.effect}
            devices = [{**one, "taints": [sick]} for one in devices]
        self._publish(f"{node}-sets", node, 2, {"sharedCounters": COUNTERS})
        count = 3 if flaw == "partial" else 2
        self._publish(f"{node}-devices", node, count, {"devices": devices}, flaw == "deleted")

    def _publish(
        self, name: str, node: str, count: int, says: dict[str, Any], deleted: bool = False
    ) -> None:
        pool = {"name": node, "generation": self.generation, "resourceSliceCount": count}
        obj = {
            "metadata": {"name": name, "uid": name},
            "spec": {"driver": NVIDIA, "nodeName": node, "pool": pool, **says},
        }
        known = slice_from(obj)
        in_full = slice_in_full(obj, known)
        self.see(SliceObserved(revision=self.next(), slice=known, in_full=in_full, deleted=deleted))

    def a_claim(self, uid: str, pool: str, random: Random) -> Claim:
        """See ``Cluster.a_claim``."""
        plain = super().a_claim(uid, pool, random)
        wish = random.choice(list(WISHES))
        if wish == "share":
            return plain
        metadata = {"name": plain.name, "namespace": plain.namespace, "uid": plain.uid}
        obj = {"metadata": metadata, "spec": {"devices": {"requests": WISHES[wish]}}}
        return replace(plain, spec=claim_from(obj).spec)

    def no_device_is_oversold(self) -> None:
        """See ``Cluster.no_device_is_oversold``; nor more than one has a device that is not
        shared, nor is more drawn on counters than there is."""
        super().no_device_is_oversold()
        drawn = dict.fromkeys(NODES, 0)
        for device, shares in self.shares().items():
            if device.driver != NVIDIA:
                continue
            drawn[device.pool] += DRAWS.get(device.device, 0)
            if device.device == "shared":
                taken = sum(parse_quantity(one.consumed["memory"]).nano for one in shares)
                assert taken <= parse_quantity("40Gi").nano, device
            else:
                assert len(shares) == 1, (device, shares)
        assert max(drawn.values()) <= 2, drawn


def _device(name: str, halves: int = 0, **says: Any) -> dict[str, Any]:
    memory = {"memory": {"value": f"{40 * halves}Gi"}}
    uses = {"consumesCounters": [{"counterSet": "card", "counters": memory}]} if halves else {}
    return {
        "name": name,
        "attributes": {"kind": {"string": name.partition("-")[0]}},
        **uses,
        **says,
    }


DRAWS = {"whole": 2, "half-0": 1, "half-1": 1}
"""Of the counter of their card, in halves."""
COUNTERS = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
THEIRS = (
    _device("plain"),
    _device("shared", capacity={"memory": {"value": "40Gi"}}, allowMultipleAllocations=True),
    *(_device(name, halves) for name, halves in DRAWS.items()),
)


def _ask(name: str, kind: str = "", of: str = NVIDIA, **exactly: Any) -> dict[str, Any]:
    expression = f'device.attributes["{NVIDIA}"].kind == "{kind}"'
    selectors = {"selectors": [{"cel": {"expression": expression}}]} if kind else {}
    return {"name": name, "exactly": {"deviceClassName": of, **selectors, **exactly}}


def _first_of(*asks: dict[str, Any]) -> dict[str, Any]:
    flat = [{"name": one["name"], **one["exactly"]} for one in asks]
    return {"name": "first", "firstAvailable": flat}


_MEMORY = {"capacity": {"requests": {"memory": "15Gi"}}}
_SHARE = {"capacity": {"requests": {"virtual_tflops": "100", "virtual_vram": "16Gi"}}}
WISHES: dict[str, list[dict[str, Any]]] = {
    "share": [],
    "plain": [_ask("a", "plain")],
    "any": [_ask("a")],
    "memory": [_ask("a", "shared", **_MEMORY)],
    "half": [_ask("a", "half")],
    "whole": [_ask("a", "whole")],
    "whole or half": [_first_of(_ask("a", "whole"), _ask("b", "half"))],
    "both halves": [_ask("a", "half", count=2)],
    "all": [_ask("a", "half", allocationMode="All")],
    "look": [_ask("a", allocationMode="All", adminAccess=True)],
    "both drivers": [_ask("a", of=names.DEVICE_CLASS, **_SHARE), _ask("b", "half")],
}


class Sharing(Cluster):
    """Replicas that attend what they choose, now these pools and then others, and believe that
    they serve all of it."""

    def __init__(self, make: type, replicas: int = 2) -> None:
        super().__init__(make, replicas)
        self.earlier: dict[str, list[tuple[tuple[str, ...] | None, int]]] = {}
        """Per replica, the readings of earlier facts under way: of which pools, and how far."""

    def attend(self, random: Random) -> None:
        """A replica attends other pools than before."""
        replica = random.choice(self.replicas)
        name = replica.state.rules.writer
        pools: tuple[str, ...] | None = random.choice(
            [("a",), ("a",), ("b",), ("b",), ("a", "b"), None]
        )
        self.hand(replica, Attend(pools))
        attended = replica.state.attended
        if attended.everything:
            self.earlier[name] = [(None, 0)] if attended.whole_from is None else []
            return
        under_way = [(these, at) for these, at in self.earlier.get(name, ()) if these is not None]
        kept = [(these, at) for these, at in under_way if set(these) <= set(attended.pools)]
        begun = {pool for these, _ in kept for pool in these}
        new = tuple(pool for pool in attended.unread() if pool not in begun)
        self.earlier[name] = [*kept, (new, 0)] if new else kept

    def read_earlier(self, random: Random) -> None:
        """A replica reads some more of what there was, as the stream has it by now."""
        replica = random.choice(self.replicas)
        readings = self.earlier.get(replica.state.rules.writer, [])
        if not readings:
            return
        pools, at = readings.pop(0)
        last = {fact.ids(): n for n, fact in enumerate(self.facts, 1) if _is_of(fact, pools)}
        left = [sequence for sequence in sorted(last.values()) if sequence > at]
        taken = left[: random.choice([1, 3, 1000])]
        for sequence in taken:
            self.hand(replica, EarlierFact(sequence, self.facts[sequence - 1]))
        at = max([at, *taken])
        if taken == left:
            self.hand(replica, EarlierFactsRead(pools, at))
        else:
            readings.append((pools, at))

    def read_facts(self, replica: Replica, lag: int) -> None:
        attended = replica.state.attended
        for sequence in range(replica.facts + 1, len(self.facts) - lag + 1):
            fact = self.facts[sequence - 1]
            if attended.everything or _is_of(fact, ("", *attended.pools), others=True):
                self.hand(replica, FactSeen(sequence, fact))
            replica.facts = sequence


def _is_of(fact: Fact, pools: tuple[str, ...] | None, *, others: bool = False) -> bool:
    """Whether a claim or pod is of one of the pools; of other facts, ``others``."""
    match fact:
        case ClaimObserved(claim=claim):
            return pools is None or claim.pool in pools
        case PodObserved(pod=pod):
            return pools is None or pod.pool in pools
        case _:
            return others


def _may_be_on(node: str, claim: Claim) -> bool:
    """As the claim-controller says it: a claim of a pool that the node has left."""
    return claim.allocation is None or any(d.id.pool == node for d in claim.allocation.devices)


def _something(used: dict[str, int]) -> dict[str, int]:
    return {key: amount for key, amount in used.items() if amount}


Action = Callable[[Cluster, Random], None]
ACTIONS: dict[Action, int] = {
    Cluster.submit: 6,
    Cluster.turn: 14,
    Cluster.commit: 12,
    Cluster.void: 4,
    Cluster.pass_time: 4,
    Cluster.listen: 3,
    Cluster.late_append: 3,
    Cluster.delete_pod: 1,
    Cluster.delete_claim: 2,
    Cluster.clear: 2,
    Cluster.move: 1,
    Cluster.moved: 1,
    Cluster.change_slices: 2,
    Cluster.lose_node: 1,
    Cluster.fall_behind: 1,
    Cluster.come_up: 4,
    Cluster.restart: 1,
}


def acted(cluster: Cluster, step: int, actions: dict[Action, int] | None = None) -> Action:
    """One more step of a history; it says what happens, and to whom."""
    random, among = Random(step), ACTIONS if actions is None else actions
    (action,) = random.choices(list(among), list(among.values()))
    action(cluster, random)
    return action


@pytest.fixture(params=[Cluster, LaneCluster], ids=["cards", "lane"])
def cluster_of(request: pytest.FixtureRequest, make_world: type) -> Callable[[int], Cluster]:
    """Clusters of so many replicas."""
    return lambda replicas: request.param(make_world, replicas)


@pytest.fixture
def act() -> Callable[[Cluster, int], Action]:
    """One more step of a history."""
    return acted


SHARING: dict[Action, int] = {
    **ACTIONS,
    Sharing.attend: 2,  # type: ignore[dict-item]
    Sharing.read_earlier: 12,  # type: ignore[dict-item]
    Cluster.submit: 8,
    Cluster.turn: 24,
    Cluster.commit: 12,
    Cluster.clear: 2,
    Cluster.delete_claim: 1,
    Cluster.move: 3,
    Cluster.moved: 8,
}


@pytest.fixture
def sharing_of(make_world: type) -> Callable[[int], Sharing]:
    """Clusters of so many replicas that each read some pools."""
    return lambda replicas: Sharing(make_world, replicas)


@pytest.fixture
def act_sharing() -> Callable[[Cluster, int], Action]:
    """One more step of a history of those."""
    return lambda cluster, step: acted(cluster, step, SHARING)
