"""Whatever is late, repeated, interleaved, lost or changed: no device is ever given to more than it
has, and no history is forgotten. For cards, which the table decides about, and for what only the
search does."""

from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.messages.decisions import CheckpointPart, Decided
from dray.messages.facts import ClaimObserved, TaintRuleObserved


def test_the_histories_commit_void_and_decide_on_all_replicas(
    cluster_of: Callable[[int], Any], act: Callable[[Any, int], Any]
) -> None:
    """What the test below is worth: with nothing committed, nothing could be allocated twice."""
    cluster, draw = cluster_of(2), Random(1)
    done = {act(cluster, draw.randrange(2**24)) for _ in range(400)}
    claims = [fact.claim for fact in cluster.facts if isinstance(fact, ClaimObserved)]
    records = [record for log in cluster.logs.values() for record in log]
    assert {record.writer for record in records if isinstance(record, Decided)} == {"one", "two"}
    assert sum(claim.allocation is not None for claim in claims) > 5
    assert any(claim.void for claim in claims)
    assert min(cluster.first.values()) > 1
    assert any(isinstance(record, CheckpointPart) for record in records)
    assert len(done) == 19, "every kind of action"


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(st.integers(0, 2**24), min_size=80, max_size=160), replicas=st.integers(2, 4))
def test_no_history_sells_a_device_twice(
    cluster_of: Callable[[int], Any],
    act: Callable[[Any, int], Any],
    steps: list[int],
    replicas: int,
) -> None:
    """Each step says what happens next, and to whom."""
    cluster = cluster_of(replicas)
    for step in steps:
        act(cluster, step)
        cluster.no_device_is_oversold()
        cluster.counters_are_sums()
        cluster.indexes_are_whole()
    cluster.check_replays()
    cluster.check_rebuilding()


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(st.integers(0, 2**24), min_size=100, max_size=300), replicas=st.integers(2, 4)
)
def test_replicas_that_each_read_some_pools_sell_no_device_twice(
    sharing_of: Callable[[int], Any],
    act_sharing: Callable[[Any, int], Any],
    steps: list[int],
    replicas: int,
) -> None:
    """Nodes move, and carry along what only their former pool's claims and log tell. What is
    decided by those who read little follows from all facts, too."""
    cluster = sharing_of(replicas)
    for step in steps:
        act_sharing(cluster, step)
        cluster.no_device_is_oversold()
        cluster.counters_are_sums()
        cluster.indexes_are_whole()
    for pool in cluster.logs:
        cluster.replay(pool)


def test_histories_with_repeated_facts_have_binding_conditions_and_taints(
    odd_of: Callable[[int], Any], act_oddly: Callable[[Any, int], Any]
) -> None:
    """What the test below is worth."""
    cluster, draw = odd_of(2), Random(1)
    done = {act_oddly(cluster, draw.randrange(2**24)) for _ in range(500)}
    devices = [
        device
        for log in cluster.logs.values()
        for record in log
        if isinstance(record, Decided)
        for pod in record.pods
        for claim in pod.claims
        for device in claim.allocation.devices
    ]
    assert any(device.terms and device.terms.binding_conditions for device in devices)
    assert {fact.deleted for fact in cluster.facts if isinstance(fact, TaintRuleObserved)} == {
        True,
        False,
    }
    assert any(pod.claims[0].reference == "of-another" for pod in cluster.pods.values())
    assert len(done) == 23, "every kind of action"


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(st.integers(0, 2**24), min_size=80, max_size=160), replicas=st.integers(2, 4))
def test_no_history_with_repeated_facts_allocates_a_device_twice_or_misses_a_fact(
    odd_of: Callable[[int], Any],
    act_oddly: Callable[[Any, int], Any],
    steps: list[int],
    replicas: int,
) -> None:
    cluster = odd_of(replicas)
    for step in steps:
        act_oddly(cluster, step)
        cluster.no_device_is_oversold()
        cluster.counters_are_sums()
        cluster.indexes_are_whole()
    cluster.check_replays()
    cluster.check_rebuilding()
