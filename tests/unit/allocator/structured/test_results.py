"""What stands in an allocation: configuration, the nodes that can use it, what is copied."""

import pytest

from dray.api.claims import DeviceTerms, DeviceToleration
from dray.api.devices import DeviceClass, OpaqueConfig
from dray.api.nodes import (
    NodeSelection,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)

HERE = NodeSelector(
    (NodeSelectorTerm(fields=(NodeSelectorRequirement("metadata.name", "In", ("here",)),)),)
)


def config(mark, *requests, source="FromClaim"):
    """Opaque parameters that differ."""
    return OpaqueConfig("d.x", {"mark": mark}, requests, source)


def configs(found):
    """The configuration of the only claim."""
    return [(one.source, one.parameters["mark"], one.requests) for one in found[0].config]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1.36", [("r", "s"), ("r", "s")]),
        ("1.37", [()]),
    ],
)
def test_a_claims_config_is_repeated_for_each_request_until_1_37(cluster, version, expected):
    cluster.publish(cluster.device("a"), cluster.device("b"))
    ask = cluster.claim(cluster.request("r"), cluster.request("s"), config=[config(1, "r", "s")])
    found = configs(cluster.on(version).allocate(ask))
    assert found == [("FromClaim", 1, requests) for requests in expected]


@pytest.mark.parametrize(("version", "requests"), [("1.36", ("r", "s")), ("1.37", ("r", "s"))])
def test_a_classes_config_comes_first_and_once_for_its_requests(cluster, version, requests):
    mine = config("class", source="FromClass")
    cluster.classes[0] = DeviceClass("any", config=(mine,))
    cluster.classes.append(DeviceClass("bare"))
    cluster.publish(*(cluster.device(name) for name in "abc"))
    ask = cluster.claim(
        cluster.request("r"),
        cluster.request("s"),
        cluster.request("t", of="bare"),
        config=[config("all"), config("t", "t"), config("none", "u")],
    )
    assert configs(cluster.on(version).allocate(ask)) == [
        ("FromClass", "class", requests),
        ("FromClaim", "all", ()),
        ("FromClaim", "t", ("t",)),
    ]


def test_config_of_an_alternative_counts_only_if_it_is_taken(cluster):
    cluster.publish(cluster.device("a"))
    request = cluster.request(
        first_available=[cluster.alternative("two", count=2), cluster.alternative("one")]
    )
    ask = cluster.claim(request, config=[config(1, "r/two"), config(2, "r/one"), config(3, "r")])
    assert configs(cluster.allocate(ask)) == [
        ("FromClaim", 2, ("r/one",)),
        ("FromClaim", 3, ("r",)),
    ]


def test_a_device_of_one_node_binds_the_claim_to_it(cluster):
    cluster.publish(cluster.device("a"), pool="p")
    cluster.publish(cluster.device("b"), pool="q", reach=cluster.nodes_with("zone", "a"))
    (found,) = cluster.allocate(cluster.claim(cluster.request(count=2)))
    assert (found.node, found.selector) == ("here", None)


def test_so_does_a_device_that_binds_to_its_node(cluster):
    cluster.publish(cluster.device("a", binds_to_node=True), reach=NodeSelection(all_nodes=True))
    (found,) = cluster.allocate(cluster.claim(cluster.request()))
    assert (found.node, found.selector) == ("here", None)


def test_different_requirements_are_merged_into_one_term(cluster):
    for number, zones in enumerate([("a",), ("a", "b"), ("b", "a")]):
        cluster.publish(
            cluster.device("a"), pool=f"p{number}", reach=cluster.nodes_with("zone", *zones)
        )
    (found,) = cluster.allocate(cluster.claim(cluster.request(count=3)))
    (term,) = found.selector.terms
    assert [one.values for one in term.expressions] == [("a",), ("a", "b")]


def test_devices_of_all_nodes_need_no_selector(cluster):
    cluster.publish(cluster.device("a"), reach=NodeSelection(all_nodes=True))
    (found,) = cluster.allocate(cluster.claim(cluster.request()))
    assert (found.node, found.selector) == ("", None)


def test_where_devices_name_their_nodes_theirs_count(cluster):
    device = cluster.device("a", reach=cluster.nodes_with("size", "3"))
    cluster.publish(device, node="", per_device_reach=True)
    (found,) = cluster.allocate(cluster.claim(cluster.request()))
    (term,) = found.selector.terms
    assert term.expressions == (NodeSelectorRequirement("size", "In", ("3",)),)


def test_tolerations_and_binding_conditions_are_copied(cluster):
    toleration = DeviceToleration("k", "Exists", seconds=5)
    cluster.publish(
        cluster.device("a", binding_conditions=("up",), binding_failure_conditions=("down",))
    )
    (found,) = cluster.allocate(cluster.claim(cluster.request(tolerations=(toleration,))))
    (device,) = found.devices
    assert device.terms == DeviceTerms((toleration,), ("up",), ("down",))


def test_no_claims_are_allocated_at_once(cluster):
    assert cluster.allocate() == []
