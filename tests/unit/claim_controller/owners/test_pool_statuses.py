"""What a pool says of who allocates its devices."""

from typing import Any

import pytest
from tests.unit.claim_controller.owners.world import NOW, World

from dray.api.names import OWNER_DRAY, OWNER_KUBE_SCHEDULER, POOL_LABEL
from dray.kube.ports import NODES, POOLS
from dray_claim_controller.pools.decisions.rules import PoolStatus
from dray_claim_controller.pools.decisions.status import nodes_in_other_pools


def status(world: World, **asked: Any) -> dict[str, Any]:
    found = PoolStatus(pool="p", nodes=("n1",), now_unix_s=NOW, **asked).answer(world.cache)
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


def test_what_kube_scheduler_had_is_written_before_dray_has_it(world: World) -> None:
    """Its own status may not have been written while it had the nodes."""
    world.give(OWNER_DRAY, generation=3, observedGeneration=1)
    found = status(world, moving=("n1",), is_recalled=True)

    assert found["owner"] == OWNER_KUBE_SCHEDULER
    assert ready(found) == ("False", "OwnerChanging")


def test_a_pool_that_gets_a_node_of_kube_scheduler_goes_on_with_its_others(world: World) -> None:
    found = status(world, moving=("n1",), is_recalled=True)

    assert "owner" not in found
    assert ready(found) == ("True", "Ready")


OTHER = {"metadata": {"name": "other"}, "spec": {"nodeSelector": {POOL_LABEL: "p"}}}


def test_a_pool_that_gets_none_of_its_nodes_says_whose_they_are(world: World) -> None:
    world.put(POOLS, OTHER)
    found = PoolStatus(pool="other", nodes=(), now_unix_s=NOW).answer(world.cache)
    assert found is not None

    (first, second) = [
        one for one in found["conditions"] if one["type"] in ("Ready", "NodeInTwoPools")
    ]
    message = (
        "it selects nodes that other pools have: n1 (p); change a spec.nodeSelector or the nodes' "
        "labels"
    )
    assert (first["status"], first["reason"]) == ("False", "NodesInOtherPools")
    assert first["message"] == f"no node is in this pool: {message}"
    assert (second["type"], second["status"]) == ("NodeInTwoPools", "True")
    assert (second["reason"], second["message"]) == ("NodesInOtherPools", message)
    assert nodes_in_other_pools(found) == message


def test_a_pool_that_gets_some_of_its_nodes_is_ready_and_says_the_same(world: World) -> None:
    world.put(POOLS, OTHER)
    world.put(NODES, {"metadata": {"name": "n2", "labels": {POOL_LABEL: "p"}}})
    found = PoolStatus(pool="other", nodes=("n2",), now_unix_s=NOW).answer(world.cache)
    assert found is not None
    assert ready(found) == ("True", "NodesInOtherPools")


def test_a_pool_that_keeps_its_nodes_is_ready_and_names_who_selects_them(world: World) -> None:
    world.put(POOLS, OTHER)
    found = status(world)

    condition = next(one for one in found["conditions"] if one["type"] == "Ready")
    message = "nodes of this pool are also selected by others, which don't get them: n1 (other)"
    assert (condition["status"], condition["reason"]) == ("True", "Ready")
    assert condition["message"] == message
    assert nodes_in_other_pools(found) == ""
