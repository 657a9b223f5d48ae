"""The scores that a replica keeps of its decisions, and how it answers."""

from typing import Any

import msgspec

from dray.messages.rpc import Scores, ScoresReply
from dray_allocator.placement.scores import reply_with_scores
from dray_allocator.state.kept_scores import KEPT, MOST_BYTES, PER_TICK, KeptScores


def reply_about(world: Any, uid: str) -> ScoresReply | None:
    """What the replica answers about a pod."""
    answer = reply_with_scores(world.state, msgspec.json.encode(Scores(pod_uid=uid)))
    return None if answer is None else msgspec.json.decode(answer, type=ScoresReply)


def test_the_scores_are_those_of_the_decision(make_world: Any) -> None:
    world = make_world().open()
    world.nodes(*(world.a_node(f"n{i}") for i in range(3)), cards=2)
    world.submit(world.a_pod("first"), world.ask("156", "4Gi"))
    world.submit(world.a_pod("second"), world.ask())
    world.submit(world.a_pod("third"), world.ask("156", "4Gi"))

    reply = reply_about(world, "second")

    assert reply is not None
    assert reply.scores is not None
    assert [one.parts for one in reply.scores.nodes] == [{"load": 0.25}, {"load": 0}, {"load": 0}]
    assert (reply.node, reply.instance) == (world.decisions()["second"].node, "one")
    assert reply.scores.nodes[0].node == reply.node


def test_a_pod_of_another_replica_is_left_to_it(world: Any) -> None:
    assert reply_about(world, "unknown") is None


def test_a_question_that_can_not_be_read_is_answered_with_an_error(world: Any) -> None:
    answer = reply_with_scores(world.state, b"{")

    assert answer is not None
    assert "can't be read" in msgspec.json.decode(answer, type=ScoresReply).error


def test_long_names_leave_fewer_nodes_within_a_kibibyte(make_world: Any) -> None:
    world = make_world().open()
    world.nodes(*(world.a_node(f"{'n' * 250}{i}") for i in range(5)))
    world.submit(world.a_pod("p"), world.ask())

    reply = reply_about(world, "p")

    assert reply is not None
    assert reply.scores is not None
    assert 1 <= len(reply.scores.nodes) < 5
    assert len(world.state.kept_scores.of("p")) <= MOST_BYTES


def test_a_burst_of_pods_pays_for_a_few_scores_only(make_world: Any) -> None:
    world = make_world().open()
    world.nodes(*(world.a_node(f"n{i}") for i in range(12)), cards=8)
    uids = [f"p{i}" for i in range(PER_TICK + 2)]
    for uid in uids:
        world.submit(world.a_pod(uid), world.ask("1", "1Gi"))

    assert [uid for uid in uids if reply_about(world, uid) is None] == uids[PER_TICK:]
    world.tick()
    world.submit(world.a_pod("later"), world.ask("1", "1Gi"))
    assert reply_about(world, "later") is not None


def test_the_oldest_are_forgotten() -> None:
    kept = KeptScores()
    for number in range(KEPT + 1):
        kept.keep(str(number), b"")

    assert kept.of("0") is None
    assert kept.of("1") == b""
