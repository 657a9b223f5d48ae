"""Devices go from dray to kube-scheduler and back, and are never both's."""

from typing import Any

import pytest

from dray.domain.names import (
    DEVICE_CLASS,
    DRIVER,
    OWNER_DRAY,
    OWNER_KUBE_SCHEDULER,
    OWNER_TAINT,
    POOL_LABEL,
    SHAPE,
)
from dray.kube.convert import time_to
from dray.kube.ports import CLAIMS, NODES, PODS, POOLS, SLICES, Changed, Deleted, Object
from dray.messages.facts import NodeObserved
from dray_claim_controller.deciding.observing import PoolStatus, Publish
from dray_claim_controller.observe.facts import pools_of
from dray_claim_controller.observe.owners import Recall, home, is_on_its_way, wanted_pool
from dray_claim_controller.observe.picture import Picture
from dray_claim_controller.observe.seen import Key
from dray_claim_controller.owners.rules import late_sales, stranded

KEY = Key("node", "n1")
QUARANTINE_S = 60.0
NOW = 1_700_000_000.0


class World:
    """A node in one pool, and the facts about it as a leader publishes them."""

    def __init__(self, owner: str = OWNER_DRAY) -> None:
        self.picture = Picture()
        self.revision = 10
        self.fact: NodeObserved | None = None
        self.left: tuple[tuple[str, int], ...] = ()
        self.now = NOW
        self.keeps_taints = True
        self.give(owner)
        self.put(NODES, {"metadata": {"name": "n1", "uid": "n1", "labels": {POOL_LABEL: "p"}}})

    def put(self, resource: Any, obj: Object) -> None:
        self.revision += 1
        obj["metadata"] |= {"resourceVersion": str(self.revision)}
        obj["metadata"].setdefault("uid", obj["metadata"]["name"])
        self.picture.apply(resource, Changed(obj))

    def give(self, wanted: str, **status: Any) -> None:
        spec = {"owner": wanted}
        self.put(POOLS, {"metadata": {"name": "p"}, "spec": spec, "status": status})

    def publish(self, *, tainted: bool, device: str = "gpu-0") -> None:
        taints = [{"key": OWNER_TAINT, "value": "dray", "effect": "NoSchedule"}] if tainted else []
        shown = {
            "name": device,
            "taints": taints,
            "allowMultipleAllocations": True,
            "capacity": {"virtual_tflops": {"value": "100"}},
        }
        spec = {
            "driver": DRIVER,
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": self.revision, "resourceSliceCount": 1},
            "devices": [shown],
        }
        self.put(SLICES, {"metadata": {"name": "s"}, "spec": spec})

    def tell(self, *, after_s: float = 0.0) -> NodeObserved:
        """The next fact of the node, or the last where there is nothing new to say."""
        self.now += after_s
        recall = Recall(self.now, QUARANTINE_S, self.keeps_taints)
        question = Publish(
            key=KEY, revision=self.revision, before=self.fact, left=self.left, recall=recall
        )
        for fact in question.answer(self.picture):
            assert isinstance(fact, NodeObserved)
            self.fact = fact
        assert self.fact is not None
        return self.fact


@pytest.fixture
def world() -> World:
    made = World()
    made.publish(tainted=True)
    made.tell()
    return made


@pytest.fixture
def theirs() -> World:
    made = World(OWNER_KUBE_SCHEDULER)
    made.publish(tainted=False)
    made.tell()
    return made


def test_a_pool_that_kube_scheduler_owns_from_birth_has_its_nodes_at_once(theirs: World) -> None:
    assert (theirs.tell().node.pool, theirs.tell().node.owner) == ("p", OWNER_KUBE_SCHEDULER)


def test_to_kube_scheduler_a_node_leaves_the_log_first(world: World) -> None:
    world.give(OWNER_KUBE_SCHEDULER)

    between = world.tell()
    assert (between.node.pool, between.node.leaving) == ("", "p")
    assert between.node.owner == OWNER_DRAY  # the taint stays
    assert world.tell(after_s=1000.0) == between

    world.left = (("p", between.node.leaving_since - 1),)  # of an earlier departure
    assert world.tell() == between
    world.left = (("p", between.revision),)
    assert (world.tell().node.pool, world.tell().node.owner) == ("p", OWNER_KUBE_SCHEDULER)


def test_an_owner_that_was_changed_by_mistake_is_changed_back_at_once(world: World) -> None:
    world.give(OWNER_KUBE_SCHEDULER)
    world.tell()
    world.give(OWNER_DRAY)

    assert (world.tell().node.pool, world.tell().node.owner) == ("p", OWNER_DRAY)


def test_to_dray_the_taint_comes_first_then_a_quarantine(theirs: World) -> None:
    theirs.give(OWNER_DRAY)

    untainted = theirs.tell()
    assert (untainted.node.pool, untainted.quarantined) == ("", True)
    assert untainted.node.owner == OWNER_DRAY  # what has the node-agent taint the devices
    assert theirs.tell(after_s=1000.0) == untainted

    theirs.publish(tainted=True)
    assert theirs.tell().recalled_unix_s == theirs.now
    assert theirs.tell(after_s=QUARANTINE_S - 1).node.pool == ""
    over = theirs.tell(after_s=1)
    assert (over.node.pool, over.node.owner, over.quarantined) == ("p", OWNER_DRAY, False)
    assert over.recalled_unix_s == theirs.now - QUARANTINE_S


def test_a_taint_that_goes_again_begins_the_quarantine_anew(theirs: World) -> None:
    theirs.give(OWNER_DRAY)
    theirs.publish(tainted=True)
    theirs.tell()
    theirs.publish(tainted=False)
    assert theirs.tell(after_s=QUARANTINE_S).recalled_unix_s is None
    theirs.publish(tainted=True)
    assert theirs.tell().quarantined
    assert theirs.tell(after_s=QUARANTINE_S - 1).quarantined


def test_in_quarantine_kube_scheduler_gets_it_back_at_once(theirs: World) -> None:
    theirs.give(OWNER_DRAY)
    theirs.tell()
    theirs.give(OWNER_KUBE_SCHEDULER)

    assert (theirs.tell().node.pool, theirs.tell().node.owner) == ("p", OWNER_KUBE_SCHEDULER)


@pytest.mark.parametrize("pool", ["other", "none"])
def test_a_node_that_goes_to_another_pool_takes_its_quarantine_along(
    theirs: World, pool: str
) -> None:
    theirs.put(POOLS, {"metadata": {"name": "other"}, "spec": {}})
    theirs.publish(tainted=True)
    theirs.put(NODES, {"metadata": {"name": "n1", "uid": "n1", "labels": {POOL_LABEL: pool}}})

    assert theirs.tell().quarantined
    assert theirs.tell(after_s=QUARANTINE_S - 1).quarantined
    assert theirs.tell(after_s=1).node.pool == ("other" if pool == "other" else "")


@pytest.mark.parametrize("recalled", [True, False])
def test_a_node_that_went_and_came_back_was_kube_schedulers_all_the_same(
    theirs: World, recalled: bool
) -> None:
    if recalled:
        theirs.give(OWNER_DRAY)
        theirs.tell()
    obj = {"metadata": {"name": "n1", "uid": "n1", "resourceVersion": "90"}}
    theirs.picture.apply(NODES, Deleted(obj))
    assert theirs.tell().deleted
    theirs.give(OWNER_DRAY, owner=OWNER_DRAY)
    theirs.put(NODES, {"metadata": {"name": "n1", "uid": "n2", "labels": {POOL_LABEL: "p"}}})
    theirs.publish(tainted=True)

    assert theirs.tell().quarantined
    assert theirs.tell(after_s=QUARANTINE_S).node.pool == "p"


def test_budgets_stay_while_devices_change_hands(world: World, theirs: World) -> None:
    """Less than what is held would keep pods from starting."""
    for one, owner in ((world, OWNER_KUBE_SCHEDULER), (theirs, OWNER_DRAY)):
        oversold = {"oversubscription": {"tflopsRatio": 3}}
        spec = {"owner": owner, "capacityConfig": oversold, "qosConfig": {"defaultQoS": "high"}}
        one.put(POOLS, {"metadata": {"name": "p"}, "spec": spec})

        between = one.tell().node
        assert between.pool == ""
        assert (between.tflops_ratio, between.qos, between.owner) == ("3", "high", OWNER_DRAY)


def test_between_two_pools_of_kube_scheduler_nobody_waits(theirs: World) -> None:
    theirs.put(POOLS, {"metadata": {"name": "b"}, "spec": {"owner": OWNER_KUBE_SCHEDULER}})
    theirs.put(NODES, {"metadata": {"name": "n1", "uid": "n1", "labels": {POOL_LABEL: "b"}}})

    assert theirs.tell().node.pool == "b"


class TestFactsWereLost:
    """Then the pool's status remembers in whose hands the devices were."""

    def test_in_quarantine_it_begins_anew(self, theirs: World) -> None:
        theirs.give(OWNER_DRAY, owner=OWNER_KUBE_SCHEDULER)
        theirs.publish(tainted=True)
        theirs.fact = None

        assert theirs.tell().quarantined
        assert theirs.tell().recalled_unix_s == theirs.now
        assert theirs.tell(after_s=QUARANTINE_S).node.pool == "p"

    def test_on_the_way_to_kube_scheduler_the_log_is_asked_again(self, world: World) -> None:
        world.give(OWNER_KUBE_SCHEDULER, decisionLog={"epoch": 2})
        world.fact = None

        between = world.tell()
        assert (between.node.pool, between.node.leaving) == ("", "p")
        assert between.revision >= between.node.leaving_since
        world.left = (("p", between.revision),)
        assert world.tell().node.owner == OWNER_KUBE_SCHEDULER

    def test_what_had_settled_stays(self, world: World, theirs: World) -> None:
        theirs.give(OWNER_KUBE_SCHEDULER, owner=OWNER_KUBE_SCHEDULER, decisionLog={"epoch": 1})
        world.give(OWNER_DRAY, owner=OWNER_DRAY, decisionLog={"epoch": 1})
        for one in (world, theirs):
            one.fact = None
            assert one.tell().node.pool == "p"


class TestTaintsAreDropped:
    """Then nothing keeps kube-scheduler away but that no claim of its asks for devices."""

    def test_dray_waits_for_the_last_claim_in_its_reach(self, theirs: World) -> None:
        theirs.keeps_taints = False
        theirs.put(CLAIMS, claim("waits"))
        theirs.give(OWNER_DRAY)
        assert theirs.tell(after_s=1000.0).recalled_unix_s is None

        theirs.put(CLAIMS, claim("waits", device="gpu-0"))
        assert theirs.tell().quarantined
        assert theirs.tell(after_s=QUARANTINE_S).node.pool == "p"

    def test_pods_that_wait_for_dray_are_out_of_its_reach(self, theirs: World) -> None:
        theirs.keeps_taints = False
        theirs.put(PODS, pod("gated", gated=True))
        theirs.put(PODS, pod("dedicated", scheduler="tensor-fusion-scheduler"))
        for name in ("gated", "dedicated"):
            theirs.put(CLAIMS, claim(f"{name}-claim", of=name))
        theirs.give(OWNER_DRAY)

        assert theirs.tell().recalled_unix_s is not None


def test_for_people_the_node_is_at_home_all_the_while(world: World, theirs: World) -> None:
    world.give(OWNER_KUBE_SCHEDULER)
    theirs.give(OWNER_DRAY)
    for one in (world, theirs):
        wanted = wanted_pool({POOL_LABEL: "p"}, pools_of(one.picture))
        assert wanted is not None
        assert is_on_its_way(one.fact or one.tell(), wanted)  # before anything was published
        assert home(one.tell(), wanted) == "p"
        assert is_on_its_way(one.tell(), wanted)


def status(world: World, **asked: Any) -> dict[str, Any]:
    found = PoolStatus(pool="p", nodes=("n1",), now_unix_s=NOW, **asked).answer(world.picture)
    assert found is not None
    return found


def ready(found: dict[str, Any]) -> tuple[str, str]:
    condition = next(one for one in found["conditions"] if one["type"] == "Ready")
    return condition["status"], condition["reason"]


def test_the_pool_says_who_allocates(world: World, theirs: World) -> None:
    assert "owner" not in status(world)
    assert status(theirs)["owner"] == OWNER_KUBE_SCHEDULER
    assert ready(status(theirs)) == ("True", "FirstFit")
    assert ready(status(theirs, allocates=False)) == ("False", "NoAllocatingScheduler")


@pytest.mark.parametrize(
    ("before", "after"),
    [(OWNER_DRAY, OWNER_KUBE_SCHEDULER), (OWNER_KUBE_SCHEDULER, OWNER_DRAY)],
)
def test_until_all_nodes_have_changed_hands_the_former_owner_stands(
    world: World, before: str, after: str
) -> None:
    world.give(after, **({"owner": before} if before != OWNER_DRAY else {}))

    found = status(world, moving=("n1",))
    assert ready(found) == ("False", "OwnerChanging")
    assert found.get("owner", OWNER_DRAY) == before
    assert "n1" in str(found["conditions"])
    assert status(world)["owner"] == after


def pod(name: str, *, gated: bool = False, scheduler: str = "default-scheduler") -> Object:
    gates = [{"name": "tensor-fusion.ai/allocation"}] if gated else []
    reference = {"name": "tensor-fusion-gpu-claim", "resourceClaimTemplateName": "base-0123456789"}
    statuses = [{"name": "tensor-fusion-gpu-claim", "resourceClaimName": f"{name}-claim"}]
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "annotations": {SHAPE: "{}", POOL_LABEL: "p"},
        },
        "spec": {
            "containers": [{"name": "c"}],
            "schedulerName": scheduler,
            "schedulingGates": gates,
            "resourceClaims": [reference],
        },
        "status": {"phase": "Pending", "resourceClaimStatuses": statuses},
    }


def claim(
    name: str,
    *,
    of: str = "",
    device: str = "",
    tflops: str = "60",
    at: float = NOW,
    decision: int = 0,
) -> Object:
    request = {"name": "gpu", "exactly": {"deviceClassName": DEVICE_CLASS}}
    made: Object = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "labels": {POOL_LABEL: "p"},
            "annotations": {"tensor-fusion.ai/decision": str(decision)} if decision else {},
        },
        "spec": {"devices": {"requests": [request]}},
    }
    if of:
        owner = {"kind": "Pod", "name": of, "uid": of, "controller": True}
        made["metadata"]["ownerReferences"] = [owner]
    if device:
        result = {
            "request": "gpu",
            "driver": DRIVER,
            "pool": "n1",
            "device": device,
            "consumedCapacity": {"virtual_tflops": tflops},
            "shareID": name,
        }
        made["status"] = {
            "allocation": {"devices": {"results": [result]}, "allocationTimestamp": time_to(at)},
            "reservedFor": [{"resource": "pods", "name": of, "uid": of}] if of else [],
        }
    return made


class TestPodsThatWait:
    """Those of a pool that kube-scheduler has by now."""

    def test_lose_their_gate_or_are_told(self, world: World) -> None:
        world.put(PODS, pod("gated", gated=True))
        world.put(PODS, pod("dedicated", scheduler="tensor-fusion-scheduler"))
        world.put(PODS, pod("theirs"))
        world.give(OWNER_KUBE_SCHEDULER, owner=OWNER_KUBE_SCHEDULER)

        found = stranded(world.picture)
        assert (found.gated, found.unbindable) == (("gated",), ("dedicated",))

    @pytest.mark.parametrize(
        ("spec", "by_now"),
        [
            (OWNER_DRAY, OWNER_DRAY),
            (OWNER_KUBE_SCHEDULER, OWNER_DRAY),
            (OWNER_DRAY, OWNER_KUBE_SCHEDULER),
        ],
    )
    def test_keep_waiting_where_it_does_not_have_the_pool(
        self, world: World, spec: str, by_now: str
    ) -> None:
        world.put(PODS, pod("gated", gated=True))
        world.give(spec, owner=by_now)

        assert stranded(world.picture).gated == ()

    def test_with_all_their_devices_lack_the_last_step_only(self, world: World) -> None:
        world.put(CLAIMS, claim("gated-claim", of="gated", device="gpu-0", decision=1_000_001))
        world.put(PODS, pod("gated", gated=True))
        world.give(OWNER_KUBE_SCHEDULER, owner=OWNER_KUBE_SCHEDULER)

        assert stranded(world.picture).gated == ()


class TestAllocationsThatCameLate:
    """On a device that dray had taken back at NOW."""

    def sales(self, world: World) -> list[tuple[str, tuple[str, ...]]]:
        return [(one.claim, one.pods) for one in late_sales(world.picture, "n1", NOW)]

    def test_the_later_one_goes(self, world: World) -> None:
        world.put(CLAIMS, claim("ours", of="ours", device="gpu-0", at=NOW + 1, decision=1_000_001))
        world.put(CLAIMS, claim("late", of="late", device="gpu-0", at=NOW + 2))
        for name in ("ours", "late"):
            world.put(PODS, pod(name))

        assert self.sales(world) == [("ns/late", ("late",))]

    def test_no_more_go_than_have_to(self, world: World) -> None:
        world.put(CLAIMS, claim("ours", of="ours", device="gpu-0", at=NOW + 1, decision=1_000_001))
        for number in (1, 2):
            late = claim(
                f"late-{number}", of=f"late-{number}", device="gpu-0", tflops="30", at=NOW + number
            )
            world.put(CLAIMS, late)
            world.put(PODS, pod(f"late-{number}"))

        assert self.sales(world) == [("ns/late-2", ("late-2",))]

    def test_one_that_is_going_is_enough(self, world: World) -> None:
        world.put(CLAIMS, claim("ours", of="ours", device="gpu-0", at=NOW + 1, decision=1_000_001))
        world.put(CLAIMS, claim("late", of="late", device="gpu-0", at=NOW + 2))
        going = pod("late")
        going["metadata"]["deletionTimestamp"] = time_to(NOW + 3)
        world.put(PODS, going)

        assert self.sales(world) == []

    @pytest.mark.parametrize("by_dray", [True, False])
    def test_a_budget_that_was_lowered_is_no_double_sale(self, world: World, by_dray: bool) -> None:
        """What kube-scheduler allocated in its time, and what dray allocated, stays."""
        decision = 1_000_001 if by_dray else 0
        for name in ("a", "b"):
            held = claim(name, of=name, device="gpu-0", at=NOW - 5, decision=decision)
            world.put(CLAIMS, held)
            world.put(PODS, pod(name))

        assert self.sales(world) == []

    def test_what_fits_may_stay(self, world: World) -> None:
        world.put(CLAIMS, claim("ours", of="ours", device="gpu-0", at=NOW + 1, decision=1_000_001))
        world.put(CLAIMS, claim("late", of="late", device="gpu-0", tflops="40", at=NOW + 2))
        world.put(PODS, pod("late"))

        assert self.sales(world) == []
