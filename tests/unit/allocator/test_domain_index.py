"""A fact looks at the domains that it concerns: as many among fifty pools as in one."""

import gc
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType

import pytest
from msgspec.structs import replace

from dray.api.pods import Pool
from dray.messages.facts import NodeObserved, PodObserved, PoolObserved, SliceObserved
from dray_allocator.core import handle as core
from dray_allocator.cycle import ended_reservations
from dray_allocator.cycle.step import Step
from dray_allocator.state import pending_allocations
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.facts import GONE_KEPT_S
from dray_allocator.state.state import AllocatorState, BusyDomains
from dray_allocator.values.events import Continue


class Counted(dict[str, SchedulingDomain]):
    """Domains that count how often one is looked at."""

    looks = 0

    def __iter__(self) -> Iterator[str]:
        for name in super().__iter__():
            self.looks += 1
            yield name

    def values(self):
        return [self[name] for name in self]

    def items(self):
        return [(name, self[name]) for name in self]

    def __getitem__(self, name):
        self.looks += 1
        return super().__getitem__(name)

    def get(self, name, default=None):
        self.looks += 1
        return super().get(name, default)


def made(make_world, pools: int):
    names = ("pool", *(f"other-{number}" for number in range(pools - 1)))
    world = make_world(pools=names).open()
    for name in names:
        world.nodes(world.a_node(f"node-of-{name}", pool=name))
    world.submit(world.a_pod("first"))
    world.commit(world.decisions()["first"])
    for number in range(8):
        world.submit(world.a_pod(f"waits-{number}"))
    for _ in range(2):  # What the index names too many is dropped by the next looks.
        world.tick()
        world.do(Continue())
    world.state.domains = Counted(world.state.domains)
    return world


def arrival(world) -> None:
    world.submit(world.a_pod("second", pool="pool"))


def commit(world) -> None:
    world.commit(world.decisions()["waits-0"])


def binding(world) -> None:
    pod = world.state.facts.pods["waits-0"]
    bound = replace(pod, node="node-of-pool", phase="Running")
    world.see(PodObserved(revision=world.next(), pod=bound))


def end(world) -> None:
    pod = world.state.facts.pods["first"]
    world.see(PodObserved(revision=world.next(), pod=replace(pod, phase="Succeeded")))


def deletion(world) -> None:
    world.claim(world.state.facts.claims["claim-first"], deleted=True)
    pod = world.state.facts.pods["first"]
    world.see(PodObserved(revision=world.next(), pod=pod, deleted=True))


def node(world) -> None:
    world.node(world.a_node("node-of-pool"), counted=("waits-0",))


def pool(world) -> None:
    changed = Pool("pool", "u", template="policy", dedicated=False)
    world.see(PoolObserved(revision=world.next(), pool=changed))


@pytest.mark.parametrize("event", [arrival, commit, binding, end, deletion, node, pool])
def test_a_fact_looks_at_no_more_domains_where_there_are_more_pools(
    make_world, event: Callable[..., None]
):
    looks = []
    for pools in (1, 50):
        world = made(make_world, pools)
        world.state.domains.looks = 0
        event(world)
        looks.append(world.state.domains.looks)
    assert looks[0] == looks[1] > 0


def test_a_void_is_settled_without_a_look_at_other_reservations(make_world, monkeypatch):
    """A pool with many reservations in flight: each change concerns its own."""
    looks = []
    end_of = pending_allocations.end_of
    monkeypatch.setattr(
        ended_reservations, "end_of", lambda *args: looks.append(args) or end_of(*args)
    )
    world = make_world().open()
    world.nodes(*(world.a_node(f"n{number}") for number in range(10)), cards=2)
    for number in range(20):
        world.submit(world.a_pod(f"p{number}"))
    world.tick()
    for uid in ("p3", "p4"):
        attempt = world.decisions()[uid].claims[0].attempt
        looks.clear()
        world.clear(f"claim-{uid}", decision=attempt, void=attempt)
        assert 0 < len(looks) < 4
    assert {uid for uid, *_ in world.released()} == {"claim-p3", "claim-p4"}


def test_a_change_of_a_node_that_stays_settles_nothing(world):
    world.full()
    world.tick()
    before = world.state.domains["pool"]
    world.node(world.a_node("n1"), counted=("a",))
    assert not before.settle
    world.node(world.a_node("n1", owner="kube-scheduler"))
    assert [why for _, why, _ in world.released()] == []


def test_many_domains_take_their_steps_after_several_events(make_world, monkeypatch):
    """A tick concerns all pools: none waits for more than its turn, and no step is long."""
    monkeypatch.setattr(core, "_DOMAINS_AT_ONCE", 8)
    world = make_world(pools=tuple(f"pool-{number}" for number in range(30))).open()
    taken: list[list[str]] = []
    take, handle = Step.take, core.handle
    monkeypatch.setattr(
        Step, "take", lambda step: taken[-1].append(step._domain.name) or take(step)
    )
    world.state.facts.position += 1
    world.state.ticks += 1
    for domain in world.state.domains.values():
        domain.ticked = True
        world.state.busy_domains.add(domain)
    while not taken or world.state.unfinished:
        taken.append([])
        handle(world.state, Continue())
    assert [len(names) for names in taken] == [8, 8, 8, 6]
    assert [name for names in taken for name in names] == list(world.state.domains)


def test_a_step_looks_at_no_more_domains_than_take_it(make_world, monkeypatch):
    """With a thousand pools, a tick would look at all of them after each of its many parts."""
    pools = tuple(f"pool-{number}" for number in range(100))
    world = make_world(pools=pools).open()
    state, looks = world.state, 0
    ready = AllocatorState.ready

    def counted(self: AllocatorState, domain: SchedulingDomain) -> bool:
        nonlocal looks
        looks += 1
        return ready(self, domain)

    for domain in state.domains.values():
        domain.ticked = True
        state.busy_domains.add(domain)
    monkeypatch.setattr(AllocatorState, "ready", counted)
    core.handle(state, Continue())
    while state.is_postponed:
        looks = 0
        core.handle(state, Continue())
        assert looks <= 2 * (core._DOMAINS_AT_ONCE + 1)
    assert not any(domain.ticked for domain in state.domains.values())


def test_domains_that_become_busy_meanwhile_take_their_turn(make_world, monkeypatch):
    """Those behind the last one in this round, the others in the next one."""
    monkeypatch.setattr(core, "_DOMAINS_AT_ONCE", 2)
    world = make_world(pools=tuple("abcdefg")).open()
    state, taken = world.state, []
    take = Step.take
    monkeypatch.setattr(Step, "take", lambda step: taken.append(step._domain.name) or take(step))

    def tick(*names: str) -> None:
        for name in names:
            state.domains[name].ticked = True
            state.busy_domains.add(state.domains[name])

    tick("b", "d", "e", "f")
    core.handle(state, Continue())
    assert taken == ["b", "d"]
    tick("a", "c", "g")
    while state.unfinished:
        core.handle(state, Continue())
    assert taken == ["b", "d", "e", "f", "g", "a", "c"]


def test_a_domain_that_was_deleted_and_came_again_is_found_at_its_new_place():
    busy, one, two = BusyDomains(), SchedulingDomain("one", 1), SchedulingDomain("two", 1)
    one.place, two.place = 1, 2
    busy.add(one)
    busy.add(two)
    one.place = 3
    busy.add(one)
    assert list(busy.after(0)) == ["two", "one"]
    assert list(busy.after(2)) == ["one"]
    for name in busy.after(0):
        busy.drop(name)
    assert list(busy.after(0)) == list(busy) == []
    busy.drop("one")


def test_pods_and_claims_that_are_gone_are_forgotten(world):
    world.nodes(world.a_node("n1"))
    pod = world.a_pod("a")
    world.submit(pod)
    world.tick()
    decision = world.decisions()["a"]
    world.commit(decision)
    assert world.state.index.claims
    assert world.state.index.pods
    claim = world.state.facts.claims[decision.claims[0].uid]
    world.claim(claim, deleted=True)
    world.see(PodObserved(revision=world.next(), pod=pod, deleted=True))
    world.tick()
    world.tick(GONE_KEPT_S, most_step_s=GONE_KEPT_S)
    assert not world.state.index.claims
    assert not world.state.index.pods


def test_a_node_that_left_is_forgotten_and_its_old_facts_are_ignored_until_then(world):
    node = world.a_node("autoscaled-1")
    world.nodes(world.a_node("other"), node)
    fact = world.state.facts.nodes[node.name]
    world.see(NodeObserved(revision=world.next(), node=node, deleted=True))
    for one in tuple(world.facts):
        if isinstance(one, SliceObserved) and one.slice.node == node.name:
            world.see(SliceObserved(revision=world.next(), slice=one.slice, deleted=True))
    world.see(NodeObserved(revision=fact.revision, node=node))
    assert node.name not in world.state.facts.nodes
    assert node.name in texts_kept(world.state)

    world.tick()
    world.tick(GONE_KEPT_S, most_step_s=GONE_KEPT_S)
    assert [text for text in texts_kept(world.state) if node.name in text] == []


def texts_kept(root: object) -> set[str]:
    """Every text that is reachable from an object."""
    texts: set[str] = set()
    seen: set[int] = set()
    waiting: list[object] = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | FunctionType):
            continue
        seen.add(id(one))
        if isinstance(one, str):
            texts.add(one)
        waiting += gc.get_referents(one)
        if isinstance(one, dict):  # The collector does not visit keys that are texts.
            waiting += one
    return texts
