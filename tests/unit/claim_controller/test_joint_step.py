"""When the pods of a group's decision are bound."""

from typing import Any

import pytest
from msgspec.structs import replace

from dray.api.names import OWNER_DRAY, OWNER_KUBE_SCHEDULER
from dray.api.pods import GroupKey, Pod
from dray.messages.decisions import GroupDecision, PodDecision
from dray_claim_controller.cache.cached_objects import CachedPod
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.execution.decisions.joint_step import JointStep
from dray_claim_controller.execution.decisions.next_step import (
    GO,
    WAIT,
    AwaitGroup,
    BindPod,
    LiftGate,
    Stop,
    next_step,
    stop_jointly,
)

ATTEMPT = 1_000_001
GROUP = GroupDecision(
    id="c.1", group=GroupKey("scheduling.volcano.sh", "ns", "g"), uid="g", size=2, timeout_s=60.0
)


class Two:
    """Two pods of a decision, each with a claim."""

    def __init__(self, make: Any) -> None:
        self.make = make
        self.cache = ObjectCache()
        self.decisions: list[PodDecision] = []

    def pod(self, name: str, *, allocated: bool = True, watched: int = 10, **fields: Any) -> None:
        made = self.make.decision(binder=fields.pop("binder", OWNER_DRAY))
        wanted = replace(made.claims[0], uid=f"claim-{name}")
        self.decisions.append(replace(made, pod_uid=name, claims=(wanted,), group=GROUP))
        of_claim = {key: fields.pop(key) for key in ("void", "deleting") if key in fields}
        allocation = self.make.allocation() if allocated else None
        claim = self.make.claim(
            uid=f"claim-{name}",
            allocation=allocation,
            decision=ATTEMPT,
            watched=watched,
            **of_claim,
        )
        self.cache.keep_claim(claim)
        if fields.pop("gone", False):
            return
        pod: Pod = self.make.pod(uid=name, **fields)
        self.cache.keep_pod(CachedPod(name, pod.node, 0, 0, False, 1, pod))

    def step(self, age_s: float = 1.0) -> str:
        return JointStep(
            decisions=tuple(self.decisions), size=2, timeout_s=60.0, age_s=age_s
        ).answer(self.cache)


@pytest.fixture
def two(make: Any) -> Two:
    made = Two(make)
    made.pod("a")
    return made


def test_all_go_once_all_have_their_devices(two: Two) -> None:
    two.pod("b")
    assert two.step() == GO


@pytest.mark.parametrize("fields", [{"allocated": False}, {"watched": 9}])
def test_they_wait_for_the_last_one(two: Two, fields: dict[str, Any]) -> None:
    two.pod("b", **fields)
    assert two.step() == WAIT


@pytest.mark.parametrize("fields", [{"void": ATTEMPT}, {"deleting": True}, {"gone": True}])
def test_they_stop_where_one_can_not_be_bound(two: Two, fields: dict[str, Any]) -> None:
    two.pod("b", **fields)
    assert two.step() == stop_jointly("1 of 2 pods of its group can't be bound")


def test_they_stop_where_a_decision_is_void_already(two: Two) -> None:
    assert two.step() == stop_jointly("1 of 2 pods of its group can't be bound")


def test_they_stop_at_the_deadline(two: Two) -> None:
    two.pod("b", allocated=False)
    assert two.step(61.0) == stop_jointly(
        "not all of its pods had their devices 60 s after the decision"
    )


@pytest.mark.parametrize(
    "fields", [{"node": "node-1"}, {"binder": OWNER_KUBE_SCHEDULER, "scheduler": "default"}]
)
def test_they_go_on_once_one_is_on_its_way(two: Two, fields: dict[str, Any]) -> None:
    two.pod("b", **fields)
    two.pod("c", void=ATTEMPT)
    assert two.step(600.0) == GO


@pytest.mark.parametrize("binder", [OWNER_DRAY, OWNER_KUBE_SCHEDULER])
def test_a_pod_with_its_devices_waits_for_its_group(make: Any, binder: str) -> None:
    decision = replace(make.decision(binder=binder), group=GROUP)
    pod = make.pod(gated=binder != OWNER_DRAY)
    claim = make.claim(decision=ATTEMPT, allocation=make.allocation())
    waits = next_step(make.observed(pod, claim, joint=WAIT), decision)
    assert waits == AwaitGroup("waits for the 2 pods of its group")
    goes = next_step(make.observed(pod, claim, joint=GO), decision)
    assert isinstance(goes, BindPod if binder == OWNER_DRAY else LiftGate)
    stops = next_step(make.observed(pod, claim, joint=stop_jointly("why")), decision)
    assert stops == Stop("group-stopped", "why", withdraw=True)


def test_a_bound_pod_stays_bound(make: Any) -> None:
    decision = replace(make.decision(), group=GROUP)
    claim = make.claim(decision=ATTEMPT, allocation=make.allocation())
    bound = make.pod(node="node-1")
    found = next_step(make.observed(bound, claim, joint=stop_jointly("why")), decision)
    assert type(found).__name__ == "Done"
