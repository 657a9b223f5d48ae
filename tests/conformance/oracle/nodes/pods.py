"""Pods at random, as an API server admits them."""

import random
from collections.abc import Callable
from typing import Any, Final

from nodes.spelling import milli, units

from dray.kube.convert import requests_of

Json = dict[str, Any]

EXTENDED: Final = ("example.com/fpga", "example.com/nic", "deviceclass.resource.kubernetes.io/tpu")
HUGE: Final = ("hugepages-2Mi", "hugepages-1Gi")
ADDRESSES: Final = (None, "0.0.0.0", "10.0.0.1", "10.0.0.2", "::", "fd00::1")
_PORTS: Final = (80, 443, 8080, 9100)


def make_spec(rng: random.Random) -> Json:
    """What a pod runs: containers, sidecars, init containers, and their needs."""
    spec: Json = {
        "containers": [_container(rng, f"main-{n}") for n in range(rng.choice((1, 1, 2, 3)))]
    }
    if rng.random() < 0.4:
        spec["initContainers"] = [_init(rng, n) for n in range(rng.choice((1, 2, 3)))]
    if rng.random() < 0.15:
        spec["overhead"] = {"cpu": milli(rng, 50), "memory": units(rng, 2**20)}
    if rng.random() < 0.2:
        spec["hostNetwork"] = True
        _use_host_network(spec)
    if rng.random() < 0.2:
        spec["resources"] = _of_the_pod(rng, spec)
    return spec


def make_status(rng: random.Random, spec: Json) -> Json:
    """What the kubelet says of a pod whose containers are being resized, or can't be."""
    status: Json = {"phase": "Running"}
    if rng.random() < 0.6:
        reason = rng.choice(("Infeasible", "Deferred"))
        condition = {"type": "PodResizePending", "status": "True", "reason": reason}
        status["conditions"] = [condition]
    for kind, statuses in (
        ("containers", "containerStatuses"),
        ("initContainers", "initContainerStatuses"),
    ):
        for container in spec.get(kind, ()):
            status.setdefault(statuses, []).append(_container_status(rng, container))
    if "resources" in spec and rng.random() < 0.7:
        status["resources"] = {"requests": _amounts(rng, 1.0)}
        status["allocatedResources"] = _amounts(rng, 0.7)
    return status


def _container(rng: random.Random, name: str) -> Json:
    container: Json = {"name": name, "image": "image", "resources": _resources(rng)}
    if rng.random() < 0.25:
        container["ports"] = [_port(rng) for _ in range(rng.choice((1, 2)))]
    return container


def _init(rng: random.Random, number: int) -> Json:
    container = _container(rng, f"init-{number}")
    if rng.random() < 0.5:
        container["restartPolicy"] = "Always"
    return container


def _resources(rng: random.Random) -> Json:
    resources: Json = {}
    if requests := _amounts(rng, 0.7):
        resources["requests"] = requests
    limits = _amounts(rng, 0.15) if rng.random() < 0.3 else {}
    for name in (*EXTENDED, *HUGE):
        if rng.random() < 0.1:
            size = 2**21 if name == HUGE[0] else 2**30 if name == HUGE[1] else 1
            limits[name] = units(rng, size * rng.choice((1, 1, 2, 3)))
    # A request may not exceed its limit; what has both here has them alike.
    limits = {name: requests.get(name, limit) for name, limit in limits.items()}
    if limits:
        resources["limits"] = limits
    return resources


def _amounts(rng: random.Random, share: float) -> Json:
    makers: dict[str, Callable[[], str]] = {
        "cpu": lambda: milli(rng, rng.choice((0, 1, 50, 100, 1000, 1500))),
        "memory": lambda: units(rng, rng.choice((0, 1, 2**20, 10**9, 2**30))),
        "ephemeral-storage": lambda: units(rng, rng.choice((0, 2**20, 10**9))),
    }
    return {name: make() for name, make in makers.items() if rng.random() < share}


def _port(rng: random.Random) -> Json:
    number = rng.choice(_PORTS)
    port: Json = {"containerPort": number}
    if rng.random() < 0.8:
        port["hostPort"] = number
        if address := rng.choice(ADDRESSES):
            port["hostIP"] = address
    if protocol := rng.choice((None, "TCP", "UDP", "SCTP")):
        port["protocol"] = protocol
    return port


def _use_host_network(spec: Json) -> None:
    """In the host's network a container's port is the node's."""
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        for port in container.get("ports", ()):
            if "hostPort" in port:
                port["containerPort"] = port["hostPort"]


def _of_the_pod(rng: random.Random, spec: Json) -> Json:
    """At least what the containers ask for, as the API server wants it."""
    least = requests_of({key: value for key, value in spec.items() if key != "overhead"})
    more = rng.choice((0, 1, 1000))
    amounts: Json = {
        "cpu": milli(rng, least.cpu_milli + more),
        "memory": units(rng, least.memory_bytes + more),
    }
    for name in HUGE:
        if name in least.resources:
            amounts[name] = str(least.resources[name])
    kept = {name: amount for name, amount in amounts.items() if rng.random() < 0.6}
    return {rng.choice(("requests", "limits")): kept or {"cpu": amounts["cpu"]}}


def _container_status(rng: random.Random, container: Json) -> Json:
    status: Json = {"name": container["name"], "image": "image", "imageID": "", "ready": True}
    status["restartCount"] = 0
    if rng.random() < 0.7:
        status["resources"] = {"requests": _amounts(rng, 0.7)} if rng.random() < 0.9 else {}
    if rng.random() < 0.7:
        status["allocatedResources"] = _amounts(rng, 0.7)
    return status
