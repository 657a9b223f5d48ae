"""Whatever a tenant creates, labels, annotates, shares and deletes in its namespace, nothing of
another namespace changes, it gets no device of a pool that does not admit it, and every honest pod
is bound.

``DRAY_ADVERSARY_EXAMPLES=500`` tries so many sequences in place of 25.
"""

import os
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from tests.adversary.tenant import SEQUENCES, Action
from tests.adversary.world import attack

from dray.api.names import DECISION, GPUPOOL, POOL_LABEL
from dray.api.pods import GroupKey, Pod
from dray.kube.ports import NATIVE_POD_GROUPS, POD_GROUPS
from dray_claim_controller.cache.object_cache import ObjectCache
from tools.simulation.cluster import DEDICATED, SHARED, SPARE

EXAMPLES = int(os.environ.get("DRAY_ADVERSARY_EXAMPLES", "25"))
THEFT = (
    Action("create claim", "c0"),
    Action("create pod", "p0", claims=("c0",), rest_s=1.0),
    Action("annotate pod", "p0", marks=((GPUPOOL, DEDICATED),), rest_s=5.0),
)
"""A claim without a pool, and the pool written on the pod that refers to it."""
KNOWN = {
    "annotated later": THEFT,
    "labelled later": (
        Action("create claim", "c0"),
        Action("label claim", "c0", marks=((POOL_LABEL, DEDICATED),)),
        Action("create pod", "p0", pool=DEDICATED, claims=("c0",), asks=True),
    ),
    "a pool that comes later": (
        Action("create claim", "c0", SPARE),
        Action("create pod", "p0", claims=("c0",), rest_s=1.0),
        Action("annotate pod", "p0", marks=((GPUPOOL, SPARE),)),
        Action("administrator makes the spare pool", rest_s=5.0),
    ),
    "another class": (
        Action("create claim", "c0", device_class="any.device", marks=((DECISION, "1000001"),)),
        Action("label claim", "c0", marks=((POOL_LABEL, DEDICATED),)),
        Action("create pod", "p0", claims=("c0",), rest_s=1.0),
        Action("annotate pod", "p0", marks=((GPUPOOL, DEDICATED),), rest_s=5.0),
    ),
    "shared by two pods": (
        Action("create claim", "c0", SHARED),
        Action("create pod", "p0", SHARED, claims=("c0",), asks=True, rest_s=5.0),
        Action("create pod", "p1", claims=("c0",), rest_s=1.0),
        Action("annotate pod", "p1", marks=((GPUPOOL, DEDICATED),), rest_s=5.0),
    ),
}
GANG = (
    Action("create group", group="one"),
    Action("create pod", "p0", SHARED, asks=True, group=POD_GROUPS.group, rest_s=10.0),
    Action("edit group", group="more than there are", rest_s=70.0),
)
"""A group of the name that another tenant's has, which runs, falls below its minimum and ends."""
KNOWN |= {
    "a group of the same name": GANG,
    "a group that goes": (*GANG, Action("delete group", rest_s=5.0)),
    "a group with a forged status": (*GANG, Action("forge group's status", rest_s=5.0)),
    "a group of Kubernetes": (
        Action("create native group", group="one"),
        Action("create claim", "c1", SHARED),
        Action(
            "create pod",
            "p0",
            SHARED,
            claims=("c0", "c1"),
            asks=True,
            group=NATIVE_POD_GROUPS.group,
            rest_s=5.0,
        ),
    ),
}


@pytest.mark.parametrize("admission", [True, False], ids=["admission", "no-admission"])
@pytest.mark.parametrize("what", KNOWN)
def test_no_known_way_leads_past_a_pools_namespaces(what: str, admission: bool) -> None:
    assert attack(KNOWN[what], admission=admission) == []


@given(actions=SEQUENCES)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
def test_no_sequence_of_actions_harms_others(actions: list[Action]) -> None:
    assert attack(actions) == []


def test_the_theft_is_seen_where_nothing_prevents_it() -> None:
    with mock.patch("dray_allocator.placement.pod_request._refused_by_pool", return_value=None):
        found = attack(THEFT, admission=False)
        assert found == [f"claim team-b/c0 got devices of ['{DEDICATED}']"]
        assert attack(THEFT, admission=True) == []


def members_anywhere(cache: ObjectCache, key: GroupKey) -> list[Pod]:
    """The pods of all groups of a name: a mistake that a claim-controller could make."""
    return [
        pod
        for cached in cache.pods.values()
        if (pod := cached.pod) is not None
        and pod.member is not None
        and pod.member.group.name == key.name
    ]


def test_a_group_that_ends_the_pods_of_others_is_seen() -> None:
    where = "dray_claim_controller.groups.decisions.rules.members"
    with mock.patch(where, members_anywhere):
        found = attack(GANG)
    assert any(one.startswith("pods team-c/g0-") for one in found)
