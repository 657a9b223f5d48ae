"""What a pool costs that is opened, closed or lost, if there are many others."""

import pytest

from dray.api.pods import Pool
from dray.messages.facts import DomainObserved, PodObserved, PoolObserved
from dray_allocator.cycle.step import Step
from dray_allocator.state.state import AllocatorState

PODS = 50


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Claims and pods that were computed again."""
    found: list[str] = []
    for name in ("_recompute_use", "_recompute_pod"):
        compute = getattr(AllocatorState, name)

        def noting(state, uid, *more, compute=compute):
            found.append(uid)
            compute(state, uid, *more)

        monkeypatch.setattr(AllocatorState, name, noting)
    return found


def epoch(world, number: int, *, deleted: bool = False) -> None:
    world.see(DomainObserved(revision=world.next(), domain="other", epoch=number, deleted=deleted))


def test_a_pool_knows_only_its_own_claims_and_pods(world, computed):
    world.nodes(world.a_node("n1"))
    for number in range(PODS):
        world.submit(world.a_pod(f"p{number}"))
    world.submit(world.a_pod("theirs", pool="other"))
    uids = ["claim-theirs", "theirs"]
    for number, deleted in ((1, False), (2, False), (2, True)):
        computed.clear()
        epoch(world, number, deleted=deleted)
        assert [uid for uid in computed if uid not in uids] == []
        assert "theirs" in computed


def test_everything_computed_again_is_as_before(world):
    """After a pool was opened, and after its log was replaced."""
    world.nodes(world.a_node("n1"))
    world.see(PoolObserved(revision=1, pool=Pool("other", "u", template="policy")))
    world.submit(world.a_pod("first"))
    world.submit(world.a_pod("theirs", pool="other"))
    for number in (1, 2):
        epoch(world, number)
        state = world.state
        before = _known(state)
        state.recompute_all()
        assert _known(state) == before
        assert state.domains["other"].queue.pending


def _known(state: AllocatorState) -> tuple[object, ...]:
    domains = state.domains.values()
    return (
        list(state.device_usage.claims()),
        [sorted(one.unsettled) for one in domains],
        [sorted(one.queue.pending) for one in domains],
        sorted(state.assumed_pods.pods()),
    )


def test_pools_are_forgotten_with_their_last_claim_and_pod(world):
    pod = world.a_pod("p", pool="other")
    world.submit(pod)
    facts = world.state.facts
    assert (list(facts.pods_in), list(facts.claims_in)) == (["other"], ["other"])
    world.claim(facts.claims["claim-p"], deleted=True)
    world.see(PodObserved(revision=world.next(), pod=pod, deleted=True))
    assert (facts.pods_in, facts.claims_in) == ({}, {})


def test_a_pod_that_changes_its_pool_waits_in_the_new_one_alone(make_world):
    world = make_world(pools=("pool", "other")).open()
    pod = world.a_pod("p")
    world.submit(pod)
    moved = world.a_pod("p", pool="other")
    world.see(PodObserved(revision=world.next(), pod=moved))
    queues = {name: list(one.queue.pending) for name, one in world.state.domains.items()}
    assert queues == {"pool": [], "other": ["p"]}
    world.see(PodObserved(revision=world.next(), pod=moved, deleted=True))
    assert not world.state.domains["other"].queue.pending


def test_only_pools_with_work_take_a_step(make_world, monkeypatch):
    world = make_world(pools=tuple(f"pool-{number}" for number in range(20))).open()
    taken: list[str] = []
    take = Step.take
    monkeypatch.setattr(Step, "take", lambda step: taken.append(step._domain.name) or take(step))
    world.submit(world.a_pod("p", pool="pool-3"))
    assert set(taken) == {"pool-3"}
