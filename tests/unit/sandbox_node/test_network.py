"""Addresses of a cluster of real nodes."""

import ipaddress

import pytest

from dray.api.errors import PermanentError
from dray_sandbox.node.network import SERVICES, ClusterNetwork, free_network


def test_a_cluster_takes_addresses_that_this_machine_has_no_route_to() -> None:
    assert free_network(["192.168.0.0/16"]).number == 64
    assert free_network(["10.64.0.0/16", "10.65.3.0/24", "10.66.0.7"]).number == 67


def test_a_machine_with_routes_to_all_candidate_networks_is_refused() -> None:
    with pytest.raises(PermanentError, match=r"10\.64\.0\.0/16 to 10\.127\.0\.0/16"):
        free_network(["10.0.0.0/8"])


def test_addresses_of_machine_router_nodes_pods_and_services_differ() -> None:
    network = ClusterNetwork(64)
    nodes = [network.node(index) for index in range(1, 255)]
    subnets = [ipaddress.ip_network(node.pods) for node in nodes]

    assert len(set(subnets)) == len(nodes)
    for node, pods in zip(nodes, subnets, strict=True):
        assert ipaddress.ip_address(node.address) in pods
        assert pods.subnet_of(ipaddress.ip_network(network.subnet))  # type: ignore[arg-type]
        assert node.first_pod != node.address
        assert not pods.overlaps(ipaddress.ip_network(SERVICES))
        assert ipaddress.ip_address(network.host) not in pods
        assert ipaddress.ip_address(network.router) not in pods
        assert len(node.link) <= 15
