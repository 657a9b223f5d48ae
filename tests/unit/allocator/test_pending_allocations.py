"""How waiting and reservations go on."""

import pytest
from msgspec.structs import replace

from dray.api import names
from dray.api.claims import AllocatedDevice, Allocation, first_attempt
from dray.messages.decisions import Decided, NodeLeft
from dray.messages.facts import PodObserved, Tick
from dray_allocator.core.handle import reasons
from dray_allocator.cycle import step
from dray_allocator.placement.schedule import schedule_pod
from dray_allocator.values.options import AllocatorOptions


def test_a_waiting_pod_is_placed_when_another_is_deleted(world):
    world.full()
    for uid in ("a", "b"):
        world.commit(world.decisions()[uid])
    world.tick()
    assert "c" not in world.decisions()
    assert reasons(world.state, "c") == world.waits("c")[-1].reasons
    world.claim(world.state.facts.claims["claim-a"], deleted=True)
    assert world.decisions()["c"].node == "n1"
    assert reasons(world.state, "c") == ()


def test_reasons_are_recorded_again_only_when_they_change(world):
    world.full()
    for _ in range(3):
        world.tick()
    assert len(world.waits("c")) == 1
    world.nodes(world.a_node("n2", unschedulable=True))
    world.tick()
    assert len(world.waits("c")) == 2


def test_of_the_pods_that_wait_only_those_are_tried_that_could_fit_now(make_world, monkeypatch):
    world = make_world().open().nodes(make_world.a_node("n1"), cards=2)
    world.submit(world.a_pod("holder"), world.ask("312", "40Gi"))
    world.submit(world.a_pod("other"), world.ask("312", "40Gi"))
    for number in range(5):
        world.submit(world.a_pod(f"small-{number}"), world.ask("10", "30Gi"))
        world.submit(world.a_pod(f"many-{number}"), world.ask("10", "1Gi", count=2))
    tried = []

    def noted(state, domain, want, effort):
        tried.append(want.pod.uid)
        return schedule_pod(state, domain, want, effort)

    monkeypatch.setattr(step, "schedule_pod", noted)
    world.claim(world.state.facts.claims["claim-holder"], deleted=True)
    assert list(world.decisions()) == ["holder", "other", "small-0"]
    assert tried == ["small-0", "small-1"]


def test_changed_counts_alone_are_recorded_after_a_while(make_world):
    world = make_world(AllocatorOptions(waiting_repeat_s=10)).open().full()
    world.nodes(world.a_node("n2", unschedulable=True))
    world.tick()
    reason_text = len(world.waits("c"))
    world.nodes(world.a_node("n3", unschedulable=True))
    world.tick()
    assert len(world.waits("c")) == reason_text
    world.tick(11)
    assert world.waits("c")[-1].reasons[-1].of == 3


def test_waiting_pods_are_tried_by_priority_then_age(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("holder"), world.ask("312", "40Gi"))
    world.submit(world.a_pod("young", created_unix_s=2.0), world.ask("200", "30Gi"))
    world.submit(world.a_pod("old", created_unix_s=1.0), world.ask("200", "30Gi"))
    world.submit(world.a_pod("dear", created_unix_s=3.0, priority=5), world.ask("200", "30Gi"))
    world.claim(world.state.facts.claims["claim-holder"], deleted=True)
    assert list(world.decisions()) == ["holder", "dear"]
    world.claim(world.state.facts.claims["claim-dear"], deleted=True)
    assert list(world.decisions()) == ["holder", "dear", "old"]


def test_an_uncommitted_decision_is_voided_by_asking_again_and_again(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("p"))
    world.tick(29)
    assert not world.sent()
    world.tick(1)
    world.tick(1)
    assert len(world.sent()) == 1
    world.tick(5)
    first, second = (send.command for send in world.sent())
    assert (first.attempt, first.claim_uid) == (first_attempt(1), "claim-p")
    assert second.key() != first.key()
    assert world.released() == []
    world.clear("claim-p", void=first.attempt)
    assert world.released() == [("claim-p", "voided", "")]
    assert world.decisions()["p"].claims[0].attempt == first.attempt + 1


def test_a_pod_that_is_gone_gives_back_only_after_its_claim_says_so(world):
    world.full()
    world.see(PodObserved(revision=world.next(), pod=world.a_pod("a"), deleted=True))
    assert [send.command.reason for send in world.sent()] == ["the pod is gone"]
    assert "c" not in world.decisions()
    world.claim(world.state.facts.claims["claim-a"], deleted=True)
    assert world.released() == [("claim-a", "deleted", "")]
    assert "c" in world.decisions()


def test_a_withdrawn_allocation_is_decided_again_elsewhere(world):
    world.nodes(world.a_node("n1"), world.a_node("n2"))
    world.submit(world.a_pod("p"))
    first = world.decisions()["p"]
    world.commit(first)
    world.tick()
    world.clear("claim-p", void=first.claims[0].attempt)
    assert world.released()[-1] == ("claim-p", "withdrawn", first.node)
    second = world.decisions()["p"]
    assert second.node != first.node
    assert second.claims[0].attempt > first.claims[0].attempt


def test_a_pod_that_waits_for_its_devices_is_committed_and_keeps_what_it_has(world):
    """It is not bound for minutes, and nobody voids its attempt or gives its room to others."""
    world.full()
    for name in ("a", "b"):
        world.commit(world.decisions()[name])
    world.tick(31)
    world.tick(600, most_step_s=600)
    assert not world.sent()
    assert {why for _, why, _ in world.released()} == {"committed"}
    assert all(world.state.assumed_pods.has(name) for name in ("a", "b"))
    assert "c" not in world.decisions()


def test_an_excluded_node_is_tried_again_after_a_while_that_doubles(make_world):
    world = make_world(AllocatorOptions(exclusion_s=300)).open().nodes(make_world.a_node("n1"))
    world.submit(world.a_pod("p"))
    attempts = []
    for rest_s in (15, 30, 60, 120, 240, 300, 300):
        decision = world.decisions()["p"]
        attempts.append(decision.claims[0].attempt)
        world.commit(decision)
        world.tick()
        world.clear("claim-p", void=attempts[-1])
        world.tick(rest_s - 1, most_step_s=rest_s - 1)
        assert world.decisions()["p"].claims[0].attempt == attempts[-1]
        (reason,) = world.waits("p")[-1].reasons
        assert reason.what == "an allocation for the pod was rolled back there recently"
        world.tick(1)
    assert attempts == list(range(attempts[0], attempts[0] + 7))


def test_a_cleared_allocation_still_counts_until_it_is_void(world):
    world.full()
    first = world.decisions()["a"]
    world.commit(first)
    world.tick()
    world.clear("claim-a")
    assert world.sent()[-1].command.reason == "the allocation was cleared"
    assert "c" not in world.decisions()
    world.clear("claim-a", void=first.claims[0].attempt)
    assert "c" in world.decisions()


def test_an_execution_the_log_does_not_know_is_voided_before_a_decision(world):
    world.nodes(world.a_node("n1"))
    begun = world.a_claim("p", world.ask(), decision=7)
    world.claim(begun)
    world.see(PodObserved(revision=world.next(), pod=world.a_pod("p")))
    assert [send.command.attempt for send in world.sent()] == [7]
    assert not world.decisions()
    world.claim(replace(begun, void=7))
    assert world.decisions()["p"].claims[0].attempt == first_attempt(1)


def test_a_node_leaves_the_domain_once_nothing_is_in_flight_on_it(make_world):
    world = make_world(pools=("pool", "other")).open().nodes(make_world.a_node("n1"))
    world.submit(world.a_pod("p"))
    decision = world.decisions()["p"]
    leaving = world.a_node("n1", pool="", leaving="pool", leaving_since=world.revision + 1)
    world.node(leaving)
    assert world.sent()[-1].command.reason == "node n1 left the domain"
    assert not [r for r in world.logs["pool"] if isinstance(r, NodeLeft)]
    world.commit(decision)
    world.tick()
    assert not [r for r in world.logs["pool"] if isinstance(r, NodeLeft)]
    world.node(leaving, counted=("p",))
    (record,) = [r for r in world.logs["pool"] if isinstance(r, NodeLeft)]
    assert (record.node, record.node_revision) == ("n1", world.revision)
    world.node(world.a_node("n1", pool="other"))
    world.submit(world.a_pod("q", pool="other"), world.ask("300", "1Gi"))
    assert "q" not in world.decisions()
    world.submit(world.a_pod("r", pool="other"))
    assert world.decisions()["r"].node == "n1"
    assert not world.oversold()


def test_a_node_leaves_no_domain_before_its_deleted_pods_are_confirmed(world):
    """A replica that reads the log only now can't distinguish such a pod from one to be counted."""
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("p"))
    world.commit(world.decisions()["p"])
    world.tick()
    world.node(world.a_node("n1"), counted=("p",))
    world.node(world.a_node("n1", pool="", leaving="pool", leaving_since=world.revision + 1))
    assert not [r for r in world.logs["pool"] if isinstance(r, NodeLeft)]
    world.see(PodObserved(revision=world.next(), pod=world.a_pod("p"), deleted=True))
    assert [r for r in world.logs["pool"] if isinstance(r, NodeLeft)]


def test_a_device_allocated_twice_is_reported(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("p"), world.ask("312", "40Gi"))
    decision = world.decisions()["p"]
    thief = world.a_claim("q", world.ask(), allocation=decision.claims[0].allocation)
    world.claim(thief)
    world.tick()
    world.tick()
    (alarm,) = world.oversold()
    assert alarm.claim_uid == "claim-q"
    assert alarm.device.endswith("n1-gpu0")


def test_a_device_allocated_twice_is_reported_at_once_where_dray_decided_so(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("p"), world.ask("312", "40Gi"))
    decision = world.decisions()["p"]
    (claim,) = decision.claims
    world.claim(world.a_claim("q", world.ask()))
    again = replace(decision, pod_uid="q", claims=(replace(claim, uid="claim-q"),))
    (record,) = [one for one in world.logs["pool"] if isinstance(one, Decided)]
    world.append(replace(record, writer="other", pods=(again,)))
    (alarm,) = world.oversold()
    assert alarm.claim_uid == "claim-q"


def allocated_by_kube_scheduler(world, uid):
    """A claim that takes half of n1's only device and more."""
    (card,) = world.state.published.of("n1").cards
    share = AllocatedDevice("r", card.id, uid, {names.VIRTUAL_VRAM: "30Gi"})
    allocation = Allocation(devices=(share,), node="n1")
    return world.a_claim(uid, world.ask(), allocation=allocation)


def test_a_device_that_kube_scheduler_allocated_again_is_not_reported_before_all_is_published(
    world,
):
    """While nobody led, the first claim went and the second was allocated its device. The new
    leader publishes what exists, then what is gone. Each is known by two ticks at the latest."""
    world.nodes(world.a_node("n1", owner="kube-scheduler"))
    first = allocated_by_kube_scheduler(world, "first")
    world.claim(first)
    world.claim(allocated_by_kube_scheduler(world, "second"))
    world.tick()
    assert not world.oversold()
    world.claim(first, deleted=True)
    for _ in range(3):
        world.tick()
    assert not world.oversold()
    assert not world.state.suspects


def test_nor_where_dray_had_decided_about_the_second_claim_and_voided_that(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("second"))
    (claim,) = world.decisions()["second"].claims
    world.node(world.a_node("n1", owner="kube-scheduler"))
    world.clear(claim.uid, void=claim.attempt)
    assert world.released()
    first = allocated_by_kube_scheduler(world, "first")
    world.claim(first)
    world.claim(allocated_by_kube_scheduler(world, "second"))
    assert len(world.state.suspects) == 1
    world.claim(first, deleted=True)
    world.tick()
    world.tick()
    assert not world.oversold()


def test_a_device_that_kube_scheduler_allocated_twice_is_reported(world):
    world.nodes(world.a_node("n1", owner="kube-scheduler"))
    world.claim(allocated_by_kube_scheduler(world, "first"))
    world.claim(allocated_by_kube_scheduler(world, "second"))
    world.tick()
    assert not world.oversold()
    world.claim(allocated_by_kube_scheduler(world, "third"))  # It delays no report.
    world.tick()
    (alarm,) = world.oversold()
    assert alarm.claim_uid == "claim-third"


def test_time_passes_only_by_ticks(world):
    world.see(Tick(revision=world.next(), now_unix_s=world.now_unix_s - 50))
    assert world.state.facts.now_unix_s == world.now_unix_s


@pytest.mark.parametrize("years", [10, -10])
def test_a_tick_of_a_wrong_clock_delays_no_time_out(world, years):
    """The next tick is right again: it errs by what one tick may add, 5 s here."""
    jump_s = years * 365 * 86_400.0
    world.nodes(world.a_node("n1"))
    world.tick(jump_s, most_step_s=5)
    world.now_unix_s -= jump_s
    world.submit(world.a_pod("p"))
    for _ in range(25):
        world.tick(most_step_s=5)
    assert not world.sent()
    for _ in range(6):
        world.tick(most_step_s=5)
    assert world.sent()


def test_a_record_from_the_future_is_timed_out_by_who_reads_it_later(make_world):
    """Its writer began with a tick of a wrong clock. It is asked about again and again."""
    world = make_world().open().nodes(make_world.a_node("n1"))
    world.submit(world.a_pod("p"))
    (decided,) = [record for record in world.logs["pool"] if isinstance(record, Decided)]
    late = make_world().open().nodes(make_world.a_node("n1"))
    late.claim(late.a_claim("p", late.ask()))
    late.append(replace(decided, now_unix_s=late.now_unix_s + 10 * 365 * 86_400.0))
    late.see(PodObserved(revision=late.next(), pod=late.a_pod("p")))
    late.serve()
    for _ in range(11):
        late.tick()
    assert len(late.sent()) >= 2
    assert len({send.command.key() for send in late.sent()}) == len(late.sent())


def test_nothing_is_decided_before_a_tick_says_what_time_it_is(make_world):
    world = make_world()
    world.tick = lambda by_s=0.0: []
    world.open().nodes(make_world.a_node("n1"))
    world.submit(world.a_pod("p"))
    assert not world.decisions()
    make_world.tick(world)
    assert world.decisions()["p"].node == "n1"


def test_an_administrator_s_look_uses_nothing(world):
    world.nodes(world.a_node("n1"))
    world.submit(world.a_pod("p"), world.ask("312", "40Gi"))
    (share,) = world.decisions()["p"].claims[0].allocation.devices
    looks = replace(
        world.decisions()["p"].claims[0].allocation, devices=(replace(share, admin_access=True),)
    )
    world.claim(world.a_claim("admin", world.ask(), allocation=looks))
    assert world.state.device_usage.of(share.id).shares == 1
    assert not world.oversold()
