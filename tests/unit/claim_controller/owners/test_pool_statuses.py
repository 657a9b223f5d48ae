"""What a pool says of who allocates its devices."""

from typing import Any

import pytest
from tests.unit.claim_controller.owners.world import NOW, World

from dray.domain.names import OWNER_DRAY, OWNER_KUBE_SCHEDULER
from dray_claim_controller.deciding.observing import PoolStatus


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
