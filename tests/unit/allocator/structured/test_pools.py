"""How slices become pools: order, generations, completeness, and nodes."""

import pytest

from dray.api.nodes import (
    NodeSelection,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from dray_allocator.devices.errors import AllocationError, NodeAllocationError


def test_pools_are_tried_by_driver_and_name_and_slices_by_name(cluster):
    cluster.publish(cluster.device("1"), name="b", pool="q", slice_count=2)
    cluster.publish(cluster.device("2"), name="a", pool="q", slice_count=2)
    cluster.publish(cluster.device("3"), driver="c.x", pool="z")
    ask = cluster.claim(cluster.request(count=3))
    assert cluster.fit(ask) == [["r=3", "r=2", "r=1"]]


def test_pools_with_binding_conditions_come_last(cluster):
    cluster.publish(cluster.device("a", binding_conditions=("ready",)), pool="a")
    cluster.publish(cluster.device("b"), pool="b")
    assert cluster.fit(cluster.claim(cluster.request())) == [["r=b"]]
    (found,) = cluster.hold("b", pool="b").allocate(cluster.claim(cluster.request()))
    assert found.devices[0].terms.binding_conditions == ("ready",)


def test_an_older_generation_counts_no_more(cluster):
    cluster.publish(cluster.device("old"), generation=1)
    cluster.publish(cluster.device("new"), generation=2)
    assert cluster.fit(cluster.claim(cluster.request())) == [["r=new"]]


def test_a_newer_generation_elsewhere_goes_unnoticed_where_the_count_is_right(cluster):
    cluster.publish(cluster.device("obsolete"), generation=1, slice_count=1)
    cluster.publish(cluster.device("new"), generation=2, slice_count=1, node="there")
    assert cluster.fit(cluster.claim(cluster.request())) == [["r=obsolete"]]


def test_a_newer_generation_elsewhere_makes_a_partial_view_obsolete(cluster):
    cluster.publish(cluster.device("obsolete"), generation=1, slice_count=2)
    cluster.publish(cluster.device("new"), generation=2, slice_count=1, node="there")
    everything = cluster.claim(cluster.request(mode="All"))
    assert cluster.fit(everything) is None


def test_slices_of_other_nodes_complete_a_pool(cluster):
    cluster.publish(cluster.device("a"), slice_count=2)
    ask = cluster.claim(cluster.request())
    assert cluster.fit(ask) is None
    assert cluster.publish(cluster.device("b"), slice_count=2, node="there").fit(ask) == [["r=a"]]


def test_of_slices_that_disagree_the_first_one_counts(cluster):
    cluster.publish(cluster.device("a"), slice_count=2)
    cluster.publish(cluster.device("b"), slice_count=3)
    assert cluster.fit(cluster.claim(cluster.request())) == [["r=a"]]
    cluster.slices.reverse()
    assert cluster.fit(cluster.claim(cluster.request())) is None


def test_slices_of_the_node_come_before_shared_ones_in_that(cluster):
    cluster.publish(cluster.device("a"), reach=NodeSelection(all_nodes=True), slice_count=3)
    cluster.publish(cluster.device("b"), slice_count=2)
    assert cluster.fit(cluster.claim(cluster.request())) == [["r=a"]]


@pytest.mark.parametrize("state", ["incomplete", "invalid"])
def test_count_skips_a_pool_that_can_not_be_used_and_all_is_an_error(cluster, state):
    if state == "incomplete":
        cluster.publish(cluster.device("a"), pool="a", slice_count=2)
    else:
        cluster.publish(cluster.device("a"), cluster.device("a"), pool="a")
    cluster.publish(cluster.device("b"), pool="b")
    assert cluster.fit(cluster.claim(cluster.request())) == [["r=b"]]
    with pytest.raises(AllocationError, match=r"asks for all devices, but resource pool d\.x/a is"):
        cluster.fit(cluster.claim(cluster.request(mode="All")))


def test_no_fit_with_an_invalid_pool_is_an_error_about_the_node(cluster):
    cluster.publish(cluster.device("a"), cluster.device("a"))
    with pytest.raises(NodeAllocationError, match=r"d\.x/p is invalid: duplicate device name a"):
        cluster.fit(cluster.claim(cluster.request()))


def test_no_fit_with_an_incomplete_pool_is_no_fit(cluster):
    cluster.publish(cluster.device("a"), slice_count=2)
    assert cluster.fit(cluster.claim(cluster.request())) is None


def test_1_34_uses_incomplete_pools_and_stops_at_invalid_ones(cluster):
    cluster.publish(cluster.device("a"), slice_count=2)
    assert cluster.on("1.34").fit(cluster.claim(cluster.request())) == [["r=a"]]
    cluster.publish(cluster.device("b"), cluster.device("b"), pool="q").hold("a")
    with pytest.raises(AllocationError, match=r"pool d\.x/q is invalid"):
        cluster.on("1.34").fit(cluster.claim(cluster.request()))


SELECTORS = [
    ("zone", "In", ("a", "b"), True),
    ("zone", "NotIn", ("a",), False),
    ("none", "NotIn", ("a",), True),
    ("zone", "Exists", (), True),
    ("none", "Exists", (), False),
    ("none", "DoesNotExist", (), True),
    ("size", "Gt", ("2",), True),
    ("size", "Lt", ("3",), False),
    ("zone", "Gt", ("2",), False),
]


@pytest.mark.parametrize(("key", "operator", "values", "reached"), SELECTORS)
def test_a_slice_reaches_the_nodes_that_its_selector_takes(cluster, key, operator, values, reached):
    cluster.publish(cluster.device("a"), reach=cluster.nodes_with(key, *values, operator=operator))
    assert (cluster.fit(cluster.claim(cluster.request())) is not None) == reached


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (NodeSelectorRequirement("zone", "Near", ("a",)), "operator 'Near' of zone is unknown"),
        (NodeSelectorRequirement("zone", "In"), "operator In of zone has no values"),
        (NodeSelectorRequirement("zone", "Exists", ("a",)), "operator Exists of zone has values"),
        (NodeSelectorRequirement("zone", "Gt", ("a",)), "operator Gt of zone needs one integer"),
        (
            NodeSelectorRequirement("zone", "In", ("not a value",)),
            "a value of zone is not a label value",
        ),
        (NodeSelectorRequirement("not a key", "Exists"), "'not a key' is not a label key"),
    ],
)
def test_a_selector_that_can_not_be_read_is_an_error(cluster, requirement, expected):
    reach = NodeSelection(selector=NodeSelector((NodeSelectorTerm((requirement,)),)))
    cluster.publish(cluster.device("a"), name="broken", reach=reach)
    with pytest.raises(AllocationError, match=f"slice broken: .*{expected}"):
        cluster.fit(cluster.claim(cluster.request()))


def test_an_empty_term_takes_no_node(cluster):
    cluster.publish(
        cluster.device("a"), reach=NodeSelection(selector=NodeSelector((NodeSelectorTerm(),)))
    )
    assert cluster.fit(cluster.claim(cluster.request())) is None


def test_fields_of_a_term_are_about_the_name(cluster):
    for name, operator, reached in (("here", "In", 1), ("here", "NotIn", 0), ("there", "In", 0)):
        term = NodeSelectorTerm(
            fields=(NodeSelectorRequirement("metadata.name", operator, (name,)),)
        )
        cluster.slices.clear()
        cluster.publish(cluster.device("a"), reach=NodeSelection(selector=NodeSelector((term,))))
        assert (cluster.fit(cluster.claim(cluster.request())) is not None) == bool(reached)
