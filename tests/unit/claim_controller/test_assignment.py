"""A node that several pools select stays with the pool that had it first, by Kubernetes alone."""

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dray.api.names import DECISION, DEVICE_CLASS, DRIVER, POOL_LABEL, VOID
from dray.kube.convert import time_to
from dray.kube.ports import CLAIMS, NODES, POOLS, SLICES, Changed, Deleted, Listed, Object
from dray.messages.facts import NodeObserved
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.facts.decisions import Publish
from dray_claim_controller.facts.handover import QuarantineTerms
from dray_claim_controller.facts.membership import (
    assigned_name,
    assigned_pool,
    contested_nodes,
    nodes_of_others,
)

NODE = "n1"
RESOURCES = (POOLS, NODES, SLICES, CLAIMS)
START_UNIX_S = 1_700_000_000.0


class Cluster:
    """The API server's objects, and a controller's picture of them."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.cache = ObjectCache()
        self.fact: NodeObserved | None = None
        self.left: dict[str, int] = {}
        self.revision = 0

    def put(self, resource: Any, obj: Object) -> None:
        """Write an object, and show it to the controller."""
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        known = self.objects.get((resource.plural, obj["metadata"]["name"]))
        uid = known["metadata"]["uid"] if known else f"uid-{self.revision}"
        obj["metadata"].setdefault("uid", uid)
        self.objects[resource.plural, obj["metadata"]["name"]] = obj
        self.cache.apply(resource, Changed(obj))

    def delete(self, resource: Any, name: str) -> None:
        """Delete an object, and show that to the controller."""
        self.revision += 1
        obj = self.objects.pop((resource.plural, name))
        metadata = obj["metadata"] | {"resourceVersion": str(self.revision)}
        self.cache.apply(resource, Deleted(obj | {"metadata": metadata}))

    def pool(self, name: str, selector: dict[str, str], *, age: int = 0, uid: str = "") -> None:
        """A pool, made ``age`` seconds after the first."""
        created = {"creationTimestamp": time_to(START_UNIX_S + age)}
        metadata = {"name": name, "uid": uid or f"uid-{name}", **created}
        self.put(POOLS, {"metadata": metadata, "spec": {"nodeSelector": selector}})

    def node(self, **labels: str) -> None:
        """The node, with these labels."""
        self.put(NODES, {"metadata": {"name": NODE, "labels": labels}})

    def slices(self, pool_name: str, label: str | None = None) -> None:
        """What the node-agent publishes."""
        metadata: Object = {"name": "slice"}
        if label is not None:
            metadata["labels"] = {POOL_LABEL: label}
        attributes = {"pool_name": {"string": pool_name}}
        spec = {
            "driver": DRIVER,
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": self.revision + 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "attributes": attributes}],
        }
        self.put(SLICES, {"metadata": metadata, "spec": spec})

    def claim(self, name: str, pool: str, *, decision: int = 1, void: int = 0) -> None:
        """A claim that holds a device of the node, decided by dray where it has a decision."""
        marks = {DECISION: str(decision), VOID: str(void)}
        metadata = {
            "name": name,
            "namespace": "ns",
            "labels": {POOL_LABEL: pool} if pool else {},
            "annotations": {key: value for key, value in marks.items() if value != "0"},
        }
        exactly = {"deviceClassName": DEVICE_CLASS}
        result = {"request": "r", "driver": DRIVER, "pool": NODE, "device": "gpu-0"}
        self.put(
            CLAIMS,
            {
                "metadata": metadata,
                "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
                "status": {"allocation": {"devices": {"results": [result]}}},
            },
        )

    def of(self, resource: Any) -> list[Object]:
        """The objects of a kind."""
        return [obj for (plural, _), obj in self.objects.items() if plural == resource.plural]

    def listed_again(self, draw: random.Random) -> ObjectCache:
        """The picture of a controller that starts now and lists in any order."""
        cache = ObjectCache()
        for resource in draw.sample(RESOURCES, len(RESOURCES)):
            objects = self.of(resource)
            draw.shuffle(objects)
            cache.apply(resource, Listed(tuple(objects), self.revision))
        return cache

    def warn(self) -> NodeObserved | None:
        """The next fact of the node."""
        question = Publish(
            key=FactKey("node", NODE),
            revision=self.revision,
            before=self.fact,
            left=tuple(self.left.items()),
            recall=QuarantineTerms(START_UNIX_S),
        )
        for fact in question.answer(self.cache):
            assert isinstance(fact, NodeObserved)
            self.fact = fact
        return self.fact


@pytest.fixture
def cluster() -> Cluster:
    """A younger pool and an older one, which both select the node."""
    made = Cluster()
    made.node(kind="gpu")
    made.pool("young", {"kind": "gpu"}, age=10)
    made.pool("old", {}, age=0)
    return made


def owner(cluster: Cluster) -> str:
    pool = assigned_pool(cluster.cache, NODE)
    return "" if pool is None else pool.name


def test_a_pool_that_alone_selects_a_node_has_it_whatever_was_before(cluster: Cluster) -> None:
    cluster.slices("young", "young")
    cluster.claim("c", "young")
    cluster.node(kind="cpu")

    assert cluster.cache.pool_selectors.of_node(NODE) == ("old",)
    assert owner(cluster) == "old"
    cluster.delete(POOLS, "old")
    assert owner(cluster) == ""


def test_without_any_trace_the_older_pool_has_it(cluster: Cluster) -> None:
    assert owner(cluster) == "old"
    assert list(contested_nodes(cluster.cache, "old")) == [(NODE, ("old", "young"))]


def test_of_pools_of_one_second_the_lower_uid_has_it(cluster: Cluster) -> None:
    cluster.pool("young", {}, age=0, uid="1")
    cluster.pool("old", {}, age=0, uid="2")

    assert owner(cluster) == "young"


def test_the_pool_that_the_devices_name_keeps_it_from_an_older_one(cluster: Cluster) -> None:
    cluster.slices("young")
    assert owner(cluster) == "young"


def test_what_the_slice_is_labelled_counts_while_its_devices_name_no_pool(
    cluster: Cluster,
) -> None:
    cluster.slices("", "young")
    assert owner(cluster) == "young"


def test_claims_that_dray_allocated_count_more_than_slices(cluster: Cluster) -> None:
    cluster.slices("old", "old")
    cluster.claim("c", "young")
    assert owner(cluster) == "young"


def test_where_both_pools_have_claims_the_slices_decide(cluster: Cluster) -> None:
    cluster.claim("a", "young")
    cluster.claim("b", "old")
    cluster.slices("young")
    assert owner(cluster) == "young"
    cluster.delete(SLICES, "slice")
    assert owner(cluster) == "old"


@pytest.mark.parametrize(
    "forged", [{"decision": 0}, {"decision": 1, "void": 1}, {"decision": 0, "pool": ""}]
)
def test_a_claim_that_dray_did_not_allocate_takes_no_node(
    cluster: Cluster, forged: dict[str, Any]
) -> None:
    cluster.slices("young", "young")
    cluster.claim("c", **({"pool": "old"} | forged))
    assert owner(cluster) == "young"


def test_without_slices_claims_of_kube_scheduler_keep_the_node(cluster: Cluster) -> None:
    cluster.claim("c", "young", decision=0)
    assert owner(cluster) == "young"


def test_a_pool_of_another_driver_of_the_same_name_is_not_a_trace(cluster: Cluster) -> None:
    cluster.slices("young")
    spec = {
        "driver": "nic.dev",
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 99, "resourceSliceCount": 1},
        "devices": [{"name": "nic", "attributes": {"pool_name": {"string": "old"}}}],
    }
    cluster.put(SLICES, {"metadata": {"name": "nic"}, "spec": spec})
    assert owner(cluster) == "young"


def test_of_several_generations_the_newest_counts(cluster: Cluster) -> None:
    cluster.slices("old")
    cluster.objects.pop((SLICES.plural, "slice"))
    newer = {
        "driver": DRIVER,
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 10**9, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"pool_name": {"string": "young"}}}],
    }
    cluster.put(SLICES, {"metadata": {"name": "newer"}, "spec": newer})
    assert owner(cluster) == "young"


UNREADABLE = {"nodeSelector": "gpu"}
"""A spec that no release writes."""


def unreadable_and_old(cluster: Cluster, *, traces: bool = True) -> None:
    """A pool with a claim and slices on the node, then unreadable to a controller that starts with
    a lost bus; the older pool selects the node, too."""
    if traces:
        cluster.slices("young", "young")
        cluster.claim("c", "young")
    young = cluster.objects[POOLS.plural, "young"]
    cluster.put(POOLS, {**young, "spec": UNREADABLE})
    cluster.cache = cluster.listed_again(random.Random(0))


def test_a_pool_that_can_not_be_read_loses_no_node_over_a_restart(cluster: Cluster) -> None:
    unreadable_and_old(cluster)

    assert cluster.cache.pool_selectors.of_node(NODE) == ("old",)
    assert assigned_name(cluster.cache, NODE) == "young"
    fact = cluster.warn()
    assert fact is not None
    assert (fact.node.pool, fact.also_selected_by) == ("", ("old",))
    assert list(contested_nodes(cluster.cache, "old")) == [(NODE, ("old",))]


def test_once_the_pool_can_be_read_it_has_its_node(cluster: Cluster) -> None:
    unreadable_and_old(cluster)
    cluster.warn()
    cluster.cache.take_dirty()
    cluster.pool("young", {"kind": "gpu"}, age=10)

    assert FactKey("node", NODE) in [key for key, _ in cluster.cache.take_dirty()]
    fact = cluster.warn()
    assert fact is not None
    assert fact.node.pool == "young"


def test_a_pool_that_can_not_be_read_gives_up_a_node_without_claims_and_slices(
    cluster: Cluster,
) -> None:
    unreadable_and_old(cluster)
    cluster.cache.take_dirty()
    cluster.delete(CLAIMS, "c")
    cluster.delete(SLICES, "slice")

    assert FactKey("node", NODE) in [key for key, _ in cluster.cache.take_dirty()]
    assert owner(cluster) == "old"


def test_a_pool_that_can_not_be_read_gets_no_node_without_a_trace(cluster: Cluster) -> None:
    unreadable_and_old(cluster, traces=False)
    assert owner(cluster) == "old"


def test_the_fact_says_who_has_the_node_and_who_else_selects_it(cluster: Cluster) -> None:
    cluster.slices("young")
    fact = cluster.warn()
    assert fact is not None
    assert (fact.node.pool, fact.node.assigned_pool) == ("young", "young")
    assert fact.also_selected_by == ("old",)


def test_changes_of_claims_and_slices_rebuild_the_fact_if_it_may_change(
    cluster: Cluster,
) -> None:
    for change in (
        lambda: cluster.slices("young"),
        lambda: cluster.claim("c", "young"),
        lambda: cluster.delete(CLAIMS, "c"),
        lambda: cluster.delete(SLICES, "slice"),
    ):
        cluster.cache.take_dirty()
        change()
        assert FactKey("node", NODE) in [key for key, _ in cluster.cache.take_dirty()]
    cluster.delete(POOLS, "old")
    cluster.cache.take_dirty()
    cluster.claim("c", "young")
    assert FactKey("node", NODE) not in [key for key, _ in cluster.cache.take_dirty()]


def test_an_owner_that_changes_loses_no_node_to_an_older_pool(cluster: Cluster) -> None:
    cluster.slices("young", "young")
    cluster.warn()
    spec = {"nodeSelector": {"kind": "gpu"}, "owner": "kube-scheduler"}
    young = cluster.objects[POOLS.plural, "young"]
    cluster.put(POOLS, {**young, "spec": spec})

    between = cluster.warn()
    assert between is not None
    assert (between.node.pool, between.node.leaving) == ("", "young")
    cluster.slices(between.node.pool, between.node.assigned_pool)
    assert owner(cluster) == "young"
    cluster.left["young"] = between.revision
    fact = cluster.warn()
    assert fact is not None
    assert (fact.node.pool, fact.node.owner) == ("young", "kube-scheduler")


def pool_with(selector: dict[str, str], name: str = "new") -> Object:
    return {"metadata": {"name": name}, "spec": {"nodeSelector": selector}}


def test_a_warning_names_nodes_that_a_new_pool_will_not_get(cluster: Cluster) -> None:
    cluster.slices("young")

    assert list(nodes_of_others(cluster.cache, pool_with({"kind": "gpu"}))) == [(NODE, "young")]
    assert list(nodes_of_others(cluster.cache, pool_with({"kind": "cpu"}))) == []
    cluster.slices("new")  # of an earlier pool of that name
    assert list(nodes_of_others(cluster.cache, pool_with({}))) == []


def test_a_warning_names_nodes_that_a_wider_pool_will_not_get(cluster: Cluster) -> None:
    cluster.slices("young")
    cluster.pool("old", {"kind": "cpu"}, age=0)
    known = cluster.objects[POOLS.plural, "old"]
    wider = {**known, "spec": {"nodeSelector": {}}}

    assert list(nodes_of_others(cluster.cache, wider)) == [(NODE, "young")]
    assert owner(cluster) == "young"
    own = cluster.objects[POOLS.plural, "young"]
    assert list(nodes_of_others(cluster.cache, own)) == []


POOL_NAMES = st.sampled_from(["a", "b", "c"])
SELECTORS = st.sampled_from([{}, {"kind": "gpu"}, {"zone": "x"}, {"kind": "none"}])


class AnyOrder(RuleBasedStateMachine):
    """Administrators, node-agent, allocators, tenants and restarts, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.had = ""
        """Who had the node before the last action."""

    @initialize()
    def begin(self) -> None:
        self.cluster.node(kind="gpu", zone="x")
        self.cluster.pool("a", {"kind": "gpu"}, age=5)
        self.cluster.warn()
        self.publish_slices(old_release=False)
        self.cluster.pool("b", {}, age=1)

    @rule(name=POOL_NAMES, selector=SELECTORS, age=st.integers(0, 9), uid=st.integers(0, 3))
    def write_pool(self, name: str, selector: dict[str, str], age: int, uid: int) -> None:
        known = self.cluster.objects.get((POOLS.plural, name))
        if known is None:
            made = f"{uid}-{self.cluster.revision}"
            self.cluster.pool(name, selector, age=age, uid=made)
        else:
            metadata = dict(known["metadata"])
            self.cluster.put(POOLS, {"metadata": metadata, "spec": {"nodeSelector": selector}})

    @rule(name=POOL_NAMES)
    def delete_pool(self, name: str) -> None:
        if (POOLS.plural, name) in self.cluster.objects:
            self.cluster.delete(POOLS, name)

    @rule(kind=st.sampled_from(["gpu", "other"]), zone=st.sampled_from(["x", "y"]))
    def label_node(self, kind: str, zone: str) -> None:
        self.cluster.node(kind=kind, zone=zone)

    @rule(goes=st.booleans())
    def publish_facts(self, goes: bool) -> None:
        fact = self.cluster.warn()
        if fact is not None and fact.node.leaving and goes:
            self.cluster.left[fact.node.leaving] = fact.revision
            self.cluster.warn()

    @rule(old_release=st.booleans())
    def publish_slices(self, old_release: bool) -> None:
        if self.cluster.fact is None:
            return
        node = self.cluster.fact.node
        self.cluster.slices(node.pool, None if old_release else node.assigned_pool)

    @rule()
    def wipe_slices(self) -> None:
        if (SLICES.plural, "slice") in self.cluster.objects:
            self.cluster.delete(SLICES, "slice")

    @precondition(lambda self: self.cluster.fact is not None and self.cluster.fact.node.pool)
    @rule(number=st.integers(0, 2))
    def allocate(self, number: int) -> None:
        assert self.cluster.fact is not None
        self.cluster.claim(f"c{number}", self.cluster.fact.node.pool)

    @rule(number=st.integers(0, 2), pool=POOL_NAMES)
    def have_kube_scheduler_allocate_a_claim_of_any_pool(self, number: int, pool: str) -> None:
        self.cluster.claim(f"tenant{number}", pool, decision=0)

    @rule(number=st.integers(0, 2), tenants=st.booleans())
    def end_claim(self, number: int, tenants: bool) -> None:
        name = f"{'tenant' if tenants else 'c'}{number}"
        if (CLAIMS.plural, name) in self.cluster.objects:
            self.cluster.delete(CLAIMS, name)

    @rule(seed=st.integers(0, 1000), lost=st.booleans())
    def restart(self, seed: int, lost: bool) -> None:
        self.cluster.cache = self.cluster.listed_again(random.Random(seed))
        if lost:
            self.cluster.fact = None
            self.cluster.left.clear()

    @invariant()
    def a_controller_that_starts_now_comes_to_the_same(self) -> None:
        fresh = self.cluster.listed_again(random.Random(self.cluster.revision))
        pool = assigned_pool(fresh, NODE)
        assert owner(self.cluster) == ("" if pool is None else pool.name)

    @invariant()
    def who_has_the_node_keeps_it(self) -> None:
        now, before, self.had = owner(self.cluster), self.had, owner(self.cluster)
        rivals = [
            name for name in self.cluster.cache.pool_selectors.of_node(NODE) if name != before
        ]
        if now == before or before not in self.cluster.cache.pool_selectors.of_node(NODE):
            return
        decided = [
            obj["metadata"]["labels"][POOL_LABEL]
            for obj in self.cluster.of(CLAIMS)
            if obj["metadata"]["annotations"]
        ]
        slices = [self._named_by(obj) for obj in self.cluster.of(SLICES)]
        assert before not in decided or any(rival in decided for rival in rivals)
        assert before not in slices or any(rival in decided for rival in rivals)

    @staticmethod
    def _named_by(obj: Object) -> str:
        devices = obj["spec"]["devices"]
        labels = obj["metadata"].get("labels") or {}
        return str(labels.get(POOL_LABEL, devices[0]["attributes"]["pool_name"]["string"]))


AnyOrder.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestAnyOrder = AnyOrder.TestCase
