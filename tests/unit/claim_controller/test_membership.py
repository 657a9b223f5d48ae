"""Which nodes a pool selects, and a node's way from one pool to another."""

import pytest

from dray.api.devices import Taint
from dray.api.names import DEDICATED_TAINT, POOL_LABEL
from dray.api.pods import Node, Pool
from dray_claim_controller.cache.pool_selectors import PoolSelectors, selects
from dray_claim_controller.facts.handover import NodeMembership, next_dray_membership
from dray_claim_controller.pools.decisions.rules import dedicated_taints

A, B = Pool("a", "u1"), Pool("b", "u2")


def test_a_pool_without_selector_has_the_nodes_labelled_with_its_name() -> None:
    assert selects(A, {POOL_LABEL: "a"})
    assert not selects(B, {POOL_LABEL: "a"})


def test_a_selector_replaces_the_label() -> None:
    pool = Pool("gpu", "u", node_selector={"kind": "h100"})

    assert selects(pool, {"kind": "h100", "zone": "x"})
    assert not selects(pool, {POOL_LABEL: "gpu"})


@pytest.mark.parametrize("selector", [{"gpu": "true"}, {}, None])
def test_the_default_pool_leaves_nodes_that_are_labelled_for_another(selector) -> None:
    pool = Pool(name="default", uid="u", default=True, node_selector=selector)
    selectors = PoolSelectors()
    labels = {"gpu": "true", POOL_LABEL: "default"}

    assert selects(pool, labels)
    assert not selects(pool, labels | {POOL_LABEL: "training"})
    selectors.put_node("mine", labels)
    selectors.put_node("theirs", labels | {POOL_LABEL: "training"})
    assert selectors.selected(pool) == ["mine"]


def test_a_new_node_enters_at_once() -> None:
    assert next_dray_membership("a", None, 0, {}, ["a"]) == NodeMembership("a")


def test_a_move_waits_for_the_old_pools_word() -> None:
    domains = ["a", "b"]
    leaving = next_dray_membership("b", Node("n", "u", pool="a"), 7, {}, domains)
    assert leaving == NodeMembership("", "a", 8)

    between = Node("n", "u", leaving="a", leaving_since=8)
    assert next_dray_membership("b", between, 8, {}, domains) == leaving
    # A word about an earlier departure is not a word about this one.
    assert next_dray_membership("b", between, 20, {("a", "n"): 7}, domains) == leaving
    assert next_dray_membership("b", between, 20, {("b", "n"): 9}, domains) == leaving
    assert next_dray_membership("b", between, 20, {("a", "n"): 8}, domains) == NodeMembership("b")


def test_a_node_may_come_back_before_it_has_left() -> None:
    between = Node("n", "u", leaving="a", leaving_since=8)

    assert next_dray_membership("a", between, 8, {}, ["a", "b"]) == NodeMembership("a")


def test_a_pool_that_is_gone_holds_no_node_back() -> None:
    between = Node("n", "u", leaving="a", leaving_since=8)

    assert next_dray_membership("b", between, 8, {}, ["b"]) == NodeMembership("b")


def test_dedicated_taints_are_kept_right_and_others_kept() -> None:
    other = Taint("x", "y")
    own = Taint(DEDICATED_TAINT, "a")
    dedicated = Pool("a", "u", dedicated=True)

    assert dedicated_taints([other], dedicated) == (other, own)
    assert dedicated_taints([other, own], dedicated) is None
    assert dedicated_taints([own, other], A) == (other,)
    assert dedicated_taints([own], Pool("b", "u", dedicated=True)) == (Taint(DEDICATED_TAINT, "b"),)
    assert dedicated_taints([other], None) is None
