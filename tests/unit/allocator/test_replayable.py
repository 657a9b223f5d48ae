"""What a record says follows from the facts its writer had applied, and from nothing else."""

import msgspec
from msgspec.structs import replace

from dray.api.pods import PodNeeds
from dray.messages.decisions import Decided, Released, Waiting
from dray.messages.facts import PodObserved, Tick
from dray_allocator.core.handle import handle, recompute
from dray_allocator.values.events import FactSeen

HUNGRY = PodNeeds(cpu_milli=8_000)


def test_reasons_count_the_nodes_as_they_are_now(world):
    """Pods of equal needs share an explanation, but not one from before a node filled up."""
    world.nodes(world.a_node("n0", cpu_milli=4_000), world.a_node("n1", cpu_milli=64_000))
    world.node(world.a_node("n1", cpu_milli=64_000, used_cpu_milli=60_000))
    tired = world.a_node("n0", cpu_milli=16_000, used_cpu_milli=0, unschedulable=True)
    world.node(tired)
    world.submit(world.a_pod("early", needs=HUNGRY))
    world.node(replace(tired, used_cpu_milli=12_000))
    world.submit(world.a_pod("late", needs=HUNGRY))

    (reason_text,) = world.waits("late")
    short = [reason for reason in reason_text.reasons if "cpu" in reason.what]
    assert [reason.failed for reason in short] == [2]


def test_nothing_is_decided_while_facts_are_missing(world):
    """A reader that lags sees a state that never was: an allocation may be among what it lacks."""
    world.nodes(world.a_node("n0"))
    pod = world.a_pod("p")
    world.claim(world.a_claim("p", world.ask()))

    seen = FactSeen(world.state.facts.position + 5, PodObserved(revision=90, pod=pod), whole=False)
    assert world.do(seen) == []

    tick = Tick(revision=91, now_unix_s=world.now_unix_s + 1)
    world.do(FactSeen(world.state.facts.position + 2, tick))
    assert set(world.decisions()) == {"p"}


def test_deletions_read_before_the_first_tick_are_remembered(make_world):
    """The tombstones of the facts' snapshot come before its tick."""
    world = make_world()
    pod = world.a_pod("p")
    handle(world.state, FactSeen(1, PodObserved(revision=1, pod=pod, deleted=True)))
    handle(world.state, FactSeen(2, Tick(revision=2, now_unix_s=1_700_000_000.0)))

    assert "p" in world.state.facts.gone_pods


def test_every_kind_of_record_is_computed_again(world):
    """From the facts and records before it; what was changed afterwards comes out."""
    world.nodes(world.a_node("n0"))
    world.submit(world.a_pod("p"))
    world.commit(world.decisions()["p"])
    decided = world.logs["pool"][-1]
    assert isinstance(decided, Decided)
    last = world.logs["pool"]
    world.tick()
    released = next(record for record in last if isinstance(record, Released))
    wrong = tuple(msgspec.structs.replace(one, why="voided") for one in released.releases)

    fresh = make_fresh(world, released.facts_sequence)
    assert recompute(fresh, released) == released
    assert recompute(fresh, msgspec.structs.replace(released, releases=wrong)) == released


def test_a_pod_that_the_facts_do_not_show_has_no_reasons(world):
    reason_text = Waiting(
        domain="pool",
        epoch=1,
        writer="one",
        facts_sequence=world.state.facts.position,
        now_unix_s=world.now_unix_s,
        pod_uid="nobody",
        namespace="ns",
        name="nobody",
        reasons=(),
    )
    assert recompute(world.state, reason_text) == reason_text


def make_fresh(world, up_to):
    """A state that folded the facts up to a sequence, and the log up to the release."""
    fresh = type(world)()
    for sequence, fact in enumerate(world.facts[:up_to], 1):
        handle(fresh.state, FactSeen(sequence, fact, more=True))
    for record in world.logs["pool"]:
        if isinstance(record, Released):
            break
        fresh.append(record)
    return fresh.state
