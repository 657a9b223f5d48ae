"""Objects that can't be read stay known: what they hold is given to nobody, whatever happens."""

import copy
import itertools
from collections.abc import Iterator
from typing import Any
from unittest.mock import ANY

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.claims import AllocatedDevice, Allocation
from dray.api.devices import DeviceId
from dray.api.names import DEDICATED_TAINT, DEVICE_CLASS, DRIVER, POOL_LABEL
from dray.kube.ports import (
    CLAIMS,
    CLASSES,
    NODES,
    PODS,
    POLICIES,
    POOLS,
    SLICES,
    Changed,
    Listed,
    Object,
    Resource,
)
from dray.messages.decisions import ClaimDecision
from dray.messages.facts import ClaimObserved, Fact, NodeObserved, PodObserved, SliceObserved
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.resources import WATCHED
from dray_claim_controller.execution.decisions.in_flight_allocations import CommitCheck
from dray_claim_controller.facts.build import key_of
from dray_claim_controller.facts.decisions import Publish
from dray_claim_controller.facts.fact_queue import FactEntry, FactQueue
from dray_claim_controller.facts.outbox import Outbox
from dray_claim_controller.pools.decisions.rules import Taints

NODE_NAMES = ("n1", "n2")
CARDS = ("gpu-0", "gpu-1")
CPU_MILLI = 1_500
"""Of each pod."""


def metadata(name: str, namespace: str = "", **more: Any) -> Object:
    where = {"namespace": namespace} if namespace else {}
    return {"name": name, "uid": f"uid-{name}", **where, **more}


def node(name: str) -> Object:
    allocatable = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    return {
        "metadata": metadata(name, labels={POOL_LABEL: "pool"}),
        "status": {"allocatable": allocatable},
    }


def slice_of(name: str) -> Object:
    devices = [{"name": card, "capacity": {"vram": {"value": "40Gi"}}} for card in CARDS]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    return {"metadata": metadata(f"slice-{name}"), "spec": spec}


def claim(name: str, device_class: str = DEVICE_CLASS, **labels: str) -> Object:
    request = {"name": "r", "exactly": {"deviceClassName": device_class}}
    return {
        "metadata": metadata(name, "ns", labels=labels),
        "spec": {"devices": {"requests": [request]}},
        "status": {},
    }


def pod(name: str, on: str) -> Object:
    container = {"name": "c", "resources": {"requests": {"cpu": f"{CPU_MILLI}m"}}}
    return {
        "metadata": metadata(name, "ns"),
        "spec": {
            "nodeName": on,
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "ours"}],
        },
        "status": {"phase": "Running"},
    }


def allocation(on: str, card: str) -> Object:
    result = {"request": "r", "driver": DRIVER, "pool": on, "device": card}
    field = {"key": "metadata.name", "operator": "In", "values": [on]}
    return {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }


def objects() -> dict[tuple[Resource, str], Object]:
    pool = {"metadata": metadata("pool"), "spec": {}}
    policy = {"metadata": metadata("policy"), "spec": {"dra": {"enable": True}}}
    known = {"metadata": metadata(DEVICE_CLASS), "spec": {"selectors": []}}
    found = [
        *((NODES, node(name)) for name in NODE_NAMES),
        *((SLICES, slice_of(name)) for name in NODE_NAMES),
        (POOLS, pool),
        (POLICIES, policy),
        (CLASSES, known),
        (CLAIMS, claim("ours", **{POOL_LABEL: "pool"})),
        (CLAIMS, claim("unlabelled")),
        (CLAIMS, claim("foreign", "others.example.com")),
        (PODS, pod("p1", "n1")),
        (PODS, pod("p2", "n2")),
    ]
    return {(resource, obj["metadata"]["name"]): obj for resource, obj in found}


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in an object but its metadata, which every server writes as it should be."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, entry in entries:
        if path == () and key == "metadata":
            continue
        yield (*path, key)
        if isinstance(entry, dict | list):
            yield from paths(entry, (*path, key))


def broken(obj: Object, path: tuple[Any, ...]) -> Object:
    """The object with a value of a wrong type."""
    made = copy.deepcopy(obj)
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = {"of": "another kind"} if isinstance(at[path[-1]], str) else 7
    return made


def mark_everything(cache: ObjectCache) -> None:
    for key in cache.all_facts():
        cache.mark(key)


class Cluster:
    """Objects as they are meant and as they are served, and what a leader publishes of them."""

    def __init__(self) -> None:
        self.meant = objects()
        self.served = objects()
        self.outbox = Outbox()
        self.published: dict[FactKey, None] = {}
        self.settled: set[tuple[str, DeviceId]] = set()
        """What claims held when all was published."""
        self.revision = 0
        for key in self.served:
            self.serve(*key)
        self.restart()

    def serve(self, resource: Resource, name: str, path: tuple[Any, ...] = ()) -> Object:
        meant = self.meant[resource, name]
        self.revision += 1
        obj = broken(meant, path) if path else copy.deepcopy(meant)
        obj["metadata"]["resourceVersion"] = str(self.revision)
        self.served[resource, name] = obj
        return obj

    def restart(self) -> None:
        """Another leader begins: of what was, it has the facts alone."""
        self.cache = ObjectCache()
        self.relist()
        mark_everything(self.cache)
        for key in self.outbox.living():
            self.cache.mark(key, self.cache.revision)
        self.publish()

    def relist(self) -> None:
        for resource in WATCHED:
            listed = tuple(one for (kind, _), one in self.served.items() if kind is resource)
            self.cache.apply(resource, Listed(copy.deepcopy(listed), self.revision))

    def change(self, resource: Resource, name: str, path: tuple[Any, ...] = ()) -> None:
        self.cache.apply(resource, Changed(copy.deepcopy(self.serve(resource, name, path))))
        self.publish()

    def publish(self) -> None:
        queue = FactQueue(self.cache, self.outbox)
        for _ in queue.take_all():
            pass
        while together := [self.answers(batch) for batch in queue.take(2)]:
            # What is published together may arrive in any order.
            for answers in reversed(list(itertools.chain(*together))):
                for fact in answers:
                    self.store(fact)
        self.settled = self.held()

    def answers(self, batch: list[FactEntry]) -> list[tuple[Fact, ...]]:
        return [
            Publish(key=key, revision=revision, before=self.outbox.newest(key)).answer(self.cache)
            for key, revision in batch
        ]

    def store(self, fact: Fact) -> None:
        self.outbox.published(fact)
        # A slice that can't be read is withdrawn; a foreign claim that holds nothing is nobody's
        # concern any more.
        if not isinstance(fact, SliceObserved) and not self.is_foreign(fact):
            self.published[key_of(fact)] = None
        offered = self.offered()
        for name, device in self.settled & self.held():
            assert offered.get(device, True), f"{device} looks free for a moment, {name} holds it"

    def held(self) -> set[tuple[str, DeviceId]]:
        """Claims and their devices, as they are meant."""
        return {
            (name, DeviceId(DRIVER, result["pool"], result["device"]))
            for (resource, name), obj in self.meant.items()
            if resource is CLAIMS
            for result in (
                (obj["status"].get("allocation") or {}).get("devices", {}).get("results", ())
            )
        }

    @staticmethod
    def is_foreign(fact: Fact) -> bool:
        return isinstance(fact, ClaimObserved) and fact.claim.name == "foreign"

    def allocate(self, name: str, device: tuple[str, str] | None) -> None:
        status = {} if device is None else {"allocation": allocation(*device)}
        self.meant[CLAIMS, name]["status"] = status
        self.change(CLAIMS, name)

    def facts(self, kind: type[Fact]) -> list[Any]:
        found = (self.outbox.last(key) for key in self.outbox.living() if key.kind == kind.NAME)
        return [fact for fact in found if fact is not None]

    def offered(self) -> dict[DeviceId, bool]:
        """Devices that an allocator may give, and whether a claim holds them."""
        held = {
            device.id
            for fact in self.facts(ClaimObserved)
            if fact.claim.allocation is not None
            for device in fact.claim.allocation.devices
        }
        return {
            (one := DeviceId(fact.slice.driver, fact.slice.pool, device.name)): one in held
            for fact in self.facts(SliceObserved)
            for device in fact.slice.devices
            if not device.unsupported
        }

    def check(self) -> None:
        offered = self.offered()
        for name, device in self.held():
            assert offered.get(device, True), f"{device} looks free, and {name} holds it"
        tombstone = [key for key in self.published if self.outbox.last(key) is None]
        assert not tombstone, "an object that exists has a tombstone"
        for fact in self.facts(NodeObserved):
            used = fact.node.used_cpu_milli
            assert used >= CPU_MILLI or fact.node.name not in self.counted_nodes()

    def counted_nodes(self) -> set[str]:
        """Nodes whose pods say at least where they are."""
        found = set()
        for (resource, _), obj in self.served.items():
            spec = obj.get("spec")
            if resource is PODS and isinstance(spec, dict) and isinstance(spec["nodeName"], str):
                found.add(spec["nodeName"])
        return found


DEVICES = [(name, card) for name in NODE_NAMES for card in CARDS]
NAMES = sorted((resource.plural, name) for resource, name in objects())
BY_PLURAL = {resource.plural: resource for resource in WATCHED}


def test_a_node_name_that_is_not_text_hides_nothing_of_what_a_claim_holds() -> None:
    cluster = Cluster()
    cluster.allocate("ours", DEVICES[0])
    field = ("nodeSelector", "nodeSelectorTerms", 0, "matchFields", 0, "values", 0)
    cluster.change(CLAIMS, "ours", ("status", "allocation", *field))
    cluster.check()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_a_claim_holds_never_looks_free(data: st.DataObject) -> None:
    cluster = Cluster()
    for _ in range(data.draw(st.integers(1, 8))):
        match data.draw(
            st.sampled_from(["allocate", "break", "break", "mend", "restart", "relist"])
        ):
            case "allocate":
                name = data.draw(st.sampled_from(["ours", "unlabelled", "foreign"]))
                cluster.allocate(name, data.draw(st.sampled_from([*DEVICES, None])))
            case "break":
                plural, name = data.draw(st.sampled_from(NAMES))
                key = (BY_PLURAL[plural], name)
                places = list(paths(cluster.meant[key]))
                cluster.change(*key, data.draw(st.sampled_from(places)))
            case "mend":
                plural, name = data.draw(st.sampled_from(NAMES))
                cluster.change(BY_PLURAL[plural], name)
            case "restart":
                cluster.restart()
            case "relist":
                cluster.relist()
                cluster.publish()
        cluster.check()
    for key in cluster.meant:
        cluster.change(*key)
    assert not cluster.cache.unreadable
    assert set(cluster.offered()) == {DeviceId(DRIVER, *device) for device in DEVICES}
    assert len(cluster.facts(NodeObserved)) == len(NODE_NAMES)
    assert len(cluster.facts(PodObserved)) == 2


@pytest.mark.parametrize("name", ["uid", "name"])
def test_a_claim_of_a_pod_whose_owner_reference_is_not_text_is_a_fact(name: str) -> None:
    """Readers decode it: a fact that nobody can decode stops its pool."""
    ours = claim("ours", **{POOL_LABEL: "pool"})
    owner = {"kind": "Pod", "name": "p1", "uid": "uid-p1", "controller": True, name: ["later"]}
    ours["metadata"] |= {"resourceVersion": "1", "ownerReferences": [owner]}
    cache = ObjectCache()
    cache.apply(CLAIMS, Changed(ours))

    read = cache.claims["uid-ours"].claim
    assert read.spec.unreadable
    fact = ClaimObserved(revision=1, claim=read)
    assert msgspec.json.decode(msgspec.json.encode(fact), type=ClaimObserved) == fact


def test_a_node_keeps_the_taint_of_a_pool_that_can_t_be_read() -> None:
    cache = ObjectCache()
    pool = {"metadata": metadata("pool", resourceVersion="1"), "spec": {"dedicated": True}}
    taint = {"key": DEDICATED_TAINT, "value": "pool", "effect": "NoSchedule"}
    tainted = node("n1") | {"spec": {"taints": [taint]}}
    tainted["metadata"] |= {"resourceVersion": "2"}
    cache.apply(POOLS, Changed(pool))
    cache.apply(NODES, Changed(tainted))
    cache.apply(
        POOLS, Changed({"metadata": pool["metadata"] | {"resourceVersion": "3"}, "spec": 7})
    )
    assert Taints(node="n1", pool="pool").answer(cache) is None
    cache.apply(
        POOLS, Changed(pool | {"metadata": pool["metadata"] | {"resourceVersion": "4"}, "spec": {}})
    )
    assert Taints(node="n1", pool="pool").answer(cache) == ()


def unreadable_holder() -> Cluster:
    """A cluster in which it is unknown which devices of a claim on n1 are its own."""
    cluster = Cluster()
    cluster.allocate("ours", ("n1", "gpu-0"))
    cluster.change(CLAIMS, "ours", ("status", "allocation", "devices", "results"))
    return cluster


def test_a_device_is_released_after_its_claim_also_if_that_changes_while_facts_are_published() -> (
    None
):
    cluster = unreadable_holder()
    mark_everything(cluster.cache)
    queue = FactQueue(cluster.cache, cluster.outbox)
    for _ in queue.take_all():
        pass
    assert next(queue.take(1)) == [(FactKey(SliceObserved.NAME, "slice-n1"), ANY)]
    cluster.cache.apply(CLAIMS, Changed(cluster.serve(CLAIMS, "ours")))
    rest = [key for batch in iter(lambda: next(queue.take(1), None), None) for key, _ in batch]
    assert rest.index(FactKey("claim", "uid-ours")) < rest.index(FactKey("slice", "slice-n1"))


def test_a_device_that_an_unreadable_claim_may_hold_is_withheld_and_no_double_sale() -> None:
    share = AllocatedDevice("r", DeviceId(DRIVER, "n1", "gpu-1"))
    wanted = Allocation(devices=(share,))
    decided = ClaimDecision(uid="p", namespace="ns", name="p", attempt=1, allocation=wanted)
    checked = CommitCheck(claim=decided).answer(unreadable_holder().cache)
    assert checked.is_withheld
    assert "claim ns/ours" in str(checked.problem)
    assert not CommitCheck(claim=decided).answer(Cluster().cache).problem
