"""Devices go from dray to kube-scheduler and back, and are never both's."""

import pytest
from tests.unit.claim_controller.owners.world import QUARANTINE_S, World, claim, pod

from dray.api.names import OWNER_DRAY, OWNER_KUBE_SCHEDULER, POOL_LABEL
from dray.kube.ports import CLAIMS, NODES, PODS, POOLS, Deleted
from dray_claim_controller.facts.handover import changes_owner, displayed_pool
from dray_claim_controller.facts.membership import assigned_pool


def test_a_pool_that_kube_scheduler_owns_from_birth_has_its_nodes_at_once(theirs: World) -> None:
    assert (theirs.warn().node.pool, theirs.warn().node.owner) == ("p", OWNER_KUBE_SCHEDULER)


def test_to_kube_scheduler_a_node_leaves_the_log_first(world: World) -> None:
    world.give(OWNER_KUBE_SCHEDULER)

    between = world.warn()
    assert (between.node.pool, between.node.leaving) == ("", "p")
    assert between.node.owner == OWNER_DRAY  # the taint stays
    assert world.warn(after_s=1000.0) == between

    world.left = (("p", between.node.leaving_since - 1),)  # of an earlier departure
    assert world.warn() == between
    world.left = (("p", between.revision),)
    assert (world.warn().node.pool, world.warn().node.owner) == ("p", OWNER_KUBE_SCHEDULER)


def test_an_owner_that_was_changed_by_mistake_is_changed_back_at_once(world: World) -> None:
    world.give(OWNER_KUBE_SCHEDULER)
    world.warn()
    world.give(OWNER_DRAY)

    assert (world.warn().node.pool, world.warn().node.owner) == ("p", OWNER_DRAY)


def test_to_dray_the_taint_comes_first_then_a_quarantine(theirs: World) -> None:
    theirs.give(OWNER_DRAY)

    untainted = theirs.warn()
    assert (untainted.node.pool, untainted.quarantined) == ("", True)
    assert untainted.node.owner == OWNER_DRAY  # what has the node-agent taint the devices
    assert theirs.warn(after_s=1000.0) == untainted

    theirs.publish(tainted=True)
    assert theirs.warn().recalled_unix_s == theirs.now
    assert theirs.warn(after_s=QUARANTINE_S - 1).node.pool == ""
    over = theirs.warn(after_s=1)
    assert (over.node.pool, over.node.owner, over.quarantined) == ("p", OWNER_DRAY, False)
    assert over.recalled_unix_s == theirs.now - QUARANTINE_S


@pytest.mark.parametrize(("observed", "is_known"), [(2, False), (3, True)])
def test_if_facts_are_lost_a_pool_that_was_changed_since_its_last_status_is_in_doubt(
    world: World, observed: int, is_known: bool
) -> None:
    """It may have gone to kube-scheduler and come back, with only the facts to tell."""
    world.publish(tainted=True)
    world.give(OWNER_DRAY, generation=3, observedGeneration=observed)
    world.fact = None

    assert world.warn().quarantined is not is_known
    world.warn()
    assert world.warn(after_s=QUARANTINE_S).node.pool == "p"


def test_if_facts_are_lost_kube_scheduler_gets_no_node_by_a_status_of_an_earlier_owner(
    world: World,
) -> None:
    world.publish(tainted=True)
    status = {"owner": OWNER_KUBE_SCHEDULER, "decisionLog": {"epoch": 1}}
    world.give(OWNER_KUBE_SCHEDULER, generation=5, observedGeneration=3, **status)
    world.fact = None

    assert (world.warn().node.pool, world.warn().node.leaving) == ("", "p")


def test_a_taint_that_is_removed_again_restarts_the_quarantine(theirs: World) -> None:
    theirs.give(OWNER_DRAY)
    theirs.publish(tainted=True)
    theirs.warn()
    theirs.publish(tainted=False)
    assert theirs.warn(after_s=QUARANTINE_S).recalled_unix_s is None
    theirs.publish(tainted=True)
    assert theirs.warn().quarantined
    assert theirs.warn(after_s=QUARANTINE_S - 1).quarantined


def test_in_quarantine_kube_scheduler_gets_it_back_at_once(theirs: World) -> None:
    theirs.give(OWNER_DRAY)
    theirs.warn()
    theirs.give(OWNER_KUBE_SCHEDULER)

    assert (theirs.warn().node.pool, theirs.warn().node.owner) == ("p", OWNER_KUBE_SCHEDULER)


@pytest.mark.parametrize("pool", ["other", "none"])
def test_a_node_that_goes_to_another_pool_takes_its_quarantine_along(
    theirs: World, pool: str
) -> None:
    theirs.put(POOLS, {"metadata": {"name": "other"}, "spec": {}})
    theirs.publish(tainted=True)
    theirs.put(NODES, {"metadata": {"name": "n1", "uid": "n1", "labels": {POOL_LABEL: pool}}})

    assert theirs.warn().quarantined
    assert theirs.warn(after_s=QUARANTINE_S - 1).quarantined
    assert theirs.warn(after_s=1).node.pool == ("other" if pool == "other" else "")


@pytest.mark.parametrize("recalled", [True, False])
def test_a_node_that_went_and_came_back_was_kube_schedulers_all_the_same(
    theirs: World, recalled: bool
) -> None:
    if recalled:
        theirs.give(OWNER_DRAY)
        theirs.warn()
    obj = {"metadata": {"name": "n1", "uid": "n1", "resourceVersion": "90"}}
    theirs.cache.apply(NODES, Deleted(obj))
    assert theirs.warn().deleted
    theirs.give(OWNER_DRAY, owner=OWNER_DRAY)
    theirs.put(NODES, {"metadata": {"name": "n1", "uid": "n2", "labels": {POOL_LABEL: "p"}}})
    theirs.publish(tainted=True)

    assert theirs.warn().quarantined
    assert theirs.warn(after_s=QUARANTINE_S).node.pool == "p"


def test_budgets_stay_while_devices_change_hands(world: World, theirs: World) -> None:
    """Less than what is held would keep pods from starting."""
    for one, owner in ((world, OWNER_KUBE_SCHEDULER), (theirs, OWNER_DRAY)):
        oversold = {"oversubscription": {"tflopsRatio": 3}}
        spec = {"owner": owner, "capacityConfig": oversold, "qosConfig": {"defaultQoS": "high"}}
        spec |= {"enforcer": "mps", "unhealthyTaintEffect": "NoExecute"}
        one.put(POOLS, {"metadata": {"name": "p"}, "spec": spec})

        between = one.warn().node
        assert between.pool == ""
        assert (between.tflops_ratio, between.qos, between.owner) == ("3", "high", OWNER_DRAY)
        assert between.enforcement.enforcer == "mps"
        assert between.unhealthy_effect == "NoExecute"


def test_between_two_pools_of_kube_scheduler_nobody_waits(theirs: World) -> None:
    theirs.put(POOLS, {"metadata": {"name": "b"}, "spec": {"owner": OWNER_KUBE_SCHEDULER}})
    theirs.put(NODES, {"metadata": {"name": "n1", "uid": "n1", "labels": {POOL_LABEL: "b"}}})

    assert theirs.warn().node.pool == "b"


class TestFactsWereLost:
    """Then the pool's status remembers in whose hands the devices were."""

    def test_in_quarantine_it_starts_again(self, theirs: World) -> None:
        theirs.give(OWNER_DRAY, owner=OWNER_KUBE_SCHEDULER)
        theirs.publish(tainted=True)
        theirs.fact = None

        assert theirs.warn().quarantined
        assert theirs.warn().recalled_unix_s == theirs.now
        assert theirs.warn(after_s=QUARANTINE_S).node.pool == "p"

    def test_on_the_way_to_kube_scheduler_the_log_is_asked_again(self, world: World) -> None:
        world.give(OWNER_KUBE_SCHEDULER, decisionLog={"epoch": 2})
        world.fact = None

        between = world.warn()
        assert (between.node.pool, between.node.leaving) == ("", "p")
        assert between.revision >= between.node.leaving_since
        world.left = (("p", between.revision),)
        assert world.warn().node.owner == OWNER_KUBE_SCHEDULER

    def test_what_had_settled_stays(self, world: World, theirs: World) -> None:
        theirs.give(OWNER_KUBE_SCHEDULER, owner=OWNER_KUBE_SCHEDULER, decisionLog={"epoch": 1})
        world.give(OWNER_DRAY, owner=OWNER_DRAY, decisionLog={"epoch": 1})
        for one in (world, theirs):
            one.fact = None
            assert one.warn().node.pool == "p"


class TestTaintsAreDropped:
    """Then nothing keeps kube-scheduler away but that no claim of its asks for devices."""

    def test_dray_waits_for_the_last_claim_in_its_reach(self, theirs: World) -> None:
        theirs.keeps_taints = False
        theirs.put(CLAIMS, claim("waits"))
        theirs.give(OWNER_DRAY)
        assert theirs.warn(after_s=1000.0).recalled_unix_s is None

        theirs.put(CLAIMS, claim("waits", device="gpu-0"))
        assert theirs.warn().quarantined
        assert theirs.warn(after_s=QUARANTINE_S).node.pool == "p"

    def test_pods_that_wait_for_dray_are_out_of_its_reach(self, theirs: World) -> None:
        theirs.keeps_taints = False
        theirs.put(PODS, pod("gated", gated=True))
        theirs.put(PODS, pod("dedicated", scheduler="tensor-fusion-scheduler"))
        for name in ("gated", "dedicated"):
            theirs.put(CLAIMS, claim(f"{name}-claim", of=name))
        theirs.give(OWNER_DRAY)

        assert theirs.warn().recalled_unix_s is not None


def test_for_people_the_node_is_at_home_all_the_while(world: World, theirs: World) -> None:
    world.give(OWNER_KUBE_SCHEDULER)
    theirs.give(OWNER_DRAY)
    for one in (world, theirs):
        wanted = assigned_pool(one.cache, "n1")
        assert wanted is not None
        assert changes_owner(one.fact or one.warn(), wanted)  # before anything was published
        assert displayed_pool(one.warn(), wanted) == "p"
        assert changes_owner(one.warn(), wanted)
