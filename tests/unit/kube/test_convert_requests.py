"""What a pod takes of its node: every resource, in the middle of a resize, and host ports."""

from typing import Any

import pytest

from dray.api.devices import DeviceClass
from dray.api.pods import HostPort
from dray.kube.convert import given_by_classes, host_ports, pod_needs, requests_of

Object = dict[str, Any]


def container(name: str = "main", **requests: str) -> Object:
    amounts = {key.replace("_", "-"): amount for key, amount in requests.items()}
    return {"name": name, "resources": {"requests": amounts}}


def status_of(name: str = "main", **more: Any) -> Object:
    return {"containerStatuses": [{"name": name, **more}]}


def requests(**amounts: str) -> Object:
    return {"requests": amounts}


INFEASIBLE = {"conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]}
DEFERRED = {"conditions": [{"type": "PodResizePending", "reason": "Deferred"}]}


def test_other_resources_are_summed_each_in_its_unit_and_rounded_up() -> None:
    limits = {"nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi", "example.com/none": "0"}
    spec = {
        "containers": [
            container(ephemeral_storage="1.5"),
            {"name": "b", "resources": {"limits": limits}},
        ],
        "overhead": {"ephemeral-storage": "1Ki"},
    }
    assert requests_of(spec).resources == {
        "ephemeral-storage": 1026,
        "hugepages-2Mi": 4 * 2**20,
        "nvidia.com/gpu": 2,
    }


@pytest.mark.parametrize(
    ("status", "cpu_milli"),
    [
        ({}, 1000),
        (status_of(), 1000),
        # Until it is smaller in fact, what it has counts.
        (status_of(resources=requests(cpu="2")), 2000),
        (status_of(resources=requests(cpu="500m"), allocatedResources={"cpu": "3"}), 3000),
        # Until it is larger, what it asks for counts, unless the node can never give it.
        (status_of(resources=requests(cpu="500m")) | DEFERRED, 1000),
        (status_of(resources=requests(cpu="500m")) | INFEASIBLE, 500),
        # A kubelet that says nothing of resources is too old to resize.
        (status_of(allocatedResources={"cpu": "3"}), 1000),
        (status_of("another", resources=requests(cpu="2")), 1000),
    ],
)
def test_a_pod_that_is_resized_takes_the_most_of_what_it_asks_for_and_has(
    status: Object, cpu_milli: int
) -> None:
    assert requests_of({"containers": [container(cpu="1")]}, status).cpu_milli == cpu_milli


def test_sidecars_are_resized_and_init_containers_are_not() -> None:
    spec = {
        "containers": [container(cpu="1")],
        "initContainers": [
            {**container("sidecar", cpu="1"), "restartPolicy": "Always"},
            container("init", cpu="1"),
        ],
    }
    grown = [{"name": name, "resources": requests(cpu="5")} for name in ("sidecar", "init")]
    assert requests_of(spec, {"initContainerStatuses": grown}).cpu_milli == 6000


def test_a_pod_as_a_whole_is_resized_too() -> None:
    spec = {"containers": [container(cpu="1")], "resources": requests(cpu="3")}
    status = {"resources": requests(cpu="4"), "allocatedResources": {"cpu": "2"}}
    assert requests_of(spec, status).cpu_milli == 4000
    assert requests_of(spec, status | INFEASIBLE).cpu_milli == 4000
    assert requests_of(spec, INFEASIBLE).cpu_milli == 3000


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"requests": {"hugepages-2Mi": "8Mi"}}, (1000, {"hugepages-2Mi": 8 * 2**20})),
        # Of a pod as a whole, only cpu, memory and huge pages can be asked for.
        ({"requests": {"example.com/nic": "1"}}, (1000, {})),
        # A limit alone does not count if the containers have requests.
        ({"limits": {"cpu": "4", "hugepages-2Mi": "2Mi"}}, (1000, {"hugepages-2Mi": 2**21})),
    ],
)
def test_resources_of_the_pod_as_a_whole_replace_what_containers_ask_for(
    resources: Object, expected: tuple[int, dict[str, int]]
) -> None:
    asked = requests_of({"containers": [container(cpu="1")], "resources": resources})
    assert (asked.cpu_milli, asked.resources) == expected


def test_host_ports_are_those_of_what_keeps_running_each_once() -> None:
    def with_ports(*ports: Object, **more: Any) -> Object:
        return {"name": "c", "ports": list(ports), **more}

    spec = {
        "containers": [
            with_ports(
                {"containerPort": 80, "hostPort": 8080},
                {"containerPort": 81, "hostPort": 8080, "protocol": "TCP", "hostIP": "0.0.0.0"},
                {"containerPort": 82},
            )
        ],
        "initContainers": [
            with_ports({"containerPort": 1, "hostPort": 53, "protocol": "UDP", "hostIP": "::1"})
            | {"restartPolicy": "Always"},
            with_ports({"containerPort": 2, "hostPort": 2}),
        ],
    }
    assert host_ports(spec) == (HostPort(53, "UDP", "::1"), HostPort(8080))


def test_in_the_hosts_network_a_containers_port_is_the_nodes() -> None:
    spec = {"hostNetwork": True, "containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}
    assert host_ports(spec) == (HostPort(80),)
    assert pod_needs(spec).ports == (HostPort(80),)


def test_resources_that_classes_stand_for_are_named() -> None:
    limits = {
        "example.com/nic": "1",
        "example.com/fpga": "1",
        "deviceclass.resource.kubernetes.io/unheard-of": "1",
    }
    needs = pod_needs({"containers": [{"name": "c", "resources": {"limits": limits}}]})
    classes = [DeviceClass("nics", extended_resource="example.com/nic"), DeviceClass("gpus")]
    assert given_by_classes(needs, classes) == (
        "resource deviceclass.resource.kubernetes.io/unheard-of",
        "resource example.com/nic",
    )
    assert given_by_classes(needs, ()) == (
        "resource deviceclass.resource.kubernetes.io/unheard-of",
    )
