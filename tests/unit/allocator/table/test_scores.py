"""What a placement policy may rely on: an index follows its scores, a choice its order of cards."""

import numpy as np

from dray.api.pods import NodeExpression, PodNeeds
from dray_allocator.nodes.ratings import Scoring
from dray_allocator.placement.fast_path import table_choice as choosing


class Rated:
    """Nodes by a scores_of, cards by their index, the last first."""

    def __init__(self, scores_of):
        self.scores_of = scores_of
        self.version = 0
        self.swept = 0

    def of(self, table, row, fitting):
        (enough,) = fitting
        assert len(enough) == table.count[row]
        assert enough.any()
        return self.scores_of[table.names[row]]

    def of_many(self, table, batch):
        self.swept += 1
        (enough,) = batch.fitting
        rows = range(table.height) if isinstance(batch.rows, slice) else batch.rows.tolist()
        counted = np.bincount(batch.owner(table)[enough], minlength=len(rows))
        assert counted.tolist() == [table.count[row] for row in rows]
        return np.array([self.scores_of[table.names[row]] for row in rows], np.int64)

    def order(self, table, row, cards):
        return cards[::-1]

    def rank(self, table, row):
        return lambda card: -card.index


def rated(monkeypatch, world, scores_of):
    score = Rated(scores_of)
    monkeypatch.setattr(
        choosing, "_scoring", lambda *_: Scoring("rated", lambda table, plan: score)
    )
    return score


def chosen(world, uid, **about):
    world.submit(world.a_pod(uid, **about), world.ask("1", "1Gi"))
    decision = world.decisions()[uid]
    return decision.node, decision.claims[0].allocation.devices[0].id.device


def test_an_index_is_void_when_the_score_s_version_moves(make_world, monkeypatch):
    world = make_world().open().nodes(*(make_world.a_node(f"n{i}") for i in range(3)), cards=4)
    score = rated(monkeypatch, world, {"n0": 2, "n1": -1, "n2": 5})
    assert chosen(world, "a") == ("n1", "n1-gpu3")
    score.scores_of["n2"] = -5
    assert chosen(world, "b")[0] == "n1"
    score.version += 1
    assert chosen(world, "c") == ("n2", "n2-gpu3")


def test_nodes_that_a_pod_names_go_by_the_same_scores(make_world, monkeypatch):
    world = make_world().open().nodes(*(make_world.a_node(f"n{i}") for i in range(3)), cards=4)
    rated(monkeypatch, world, {"n0": 2, "n1": -1, "n2": 5})
    named = NodeExpression("metadata.name", "In", ("n2", "n0"), is_field=True)
    assert chosen(world, "a", needs=PodNeeds(node_terms=((named,),))) == ("n0", "n0-gpu3")


def test_many_changed_nodes_are_rated_together_as_one_by_one(make_world, monkeypatch):
    world = make_world().open()
    names = [f"n{i}" for i in range(100)]
    for number, name in enumerate(names):
        world.nodes(world.a_node(name), cards=number % 3)
    score = rated(monkeypatch, world, {name: number for number, name in enumerate(names)})
    assert chosen(world, "a")[0] == "n1"
    before = score.swept
    for name in names[5:25]:
        world.node(world.a_node(name, pods=0))
    assert chosen(world, "b")[0] == "n1"
    assert score.swept == before + 1
