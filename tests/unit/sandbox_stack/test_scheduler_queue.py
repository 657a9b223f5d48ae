"""When the scheduler stand-in tries a pod, and which first."""

from tests.unit.sandbox_stack.objects import cluster, pod, seen

from dray_sandbox.scheduler.queue import FLUSH_S, Queue


def test_backoff_grows_to_ten_seconds_and_needs_a_change_to_count() -> None:
    queue, pods = Queue(), {}
    mine = seen(cluster(), pod("mine"))
    pods[mine.uid] = mine
    queue.activate(mine.uid)
    assert queue.due(pods, 0.0) == [mine]
    pauses = []
    now = 0.0
    for _ in range(6):
        queue.record_attempt(mine.uid, now)
        assert queue.next_due_s(now) == FLUSH_S
        queue.activate(mine.uid)
        pause = queue.next_due_s(now)
        assert pause is not None
        pauses.append(pause)
        now += pause
    assert pauses == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_parked_pod_is_tried_at_once_when_something_changes() -> None:
    queue = Queue()
    queue.activate("uid")
    queue.record_gated("uid", 5.0)
    assert queue.next_due_s(5.0) == FLUSH_S
    queue.activate("uid")
    assert queue.next_due_s(5.0) == 0.0


def test_more_important_pods_go_first_then_older_ones() -> None:
    made = cluster()
    queue = Queue()
    ages = {"young": "2026-01-02T00:00:00Z", "old": "2026-01-01T00:00:00Z"}
    for name, created in ages.items():
        obj = pod(name)
        obj["metadata"]["creationTimestamp"] = created
        queue.activate(seen(made, obj).uid)
    queue.activate(seen(made, pod("vip", priority=10)).uid)
    assert [p.name for p in queue.due(made.pods, 0.0)] == ["vip", "old", "young"]


def test_a_pod_that_went_while_it_was_tried_is_not_due_for_ever() -> None:
    queue = Queue()
    queue.record_attempt("gone", 0.0)
    queue.activate("gone")
    assert queue.due({}, 100.0) == []
    assert queue.next_due_s(100.0) is None
