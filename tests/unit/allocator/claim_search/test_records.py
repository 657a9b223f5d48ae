"""What is decided is written in full, and read back as it was."""

from typing import Any

from msgspec.structs import replace

from dray.api import names
from dray.kube.convert import allocation_to
from dray.messages.decisions import decode_record, encode_record
from dray.messages.facts import (
    PodObserved,
)
from dray_allocator.values.events import Append
from dray_sandbox.apiserver.claimstatus import status_errors

NVIDIA = "gpu.nvidia.com"
MIG = {"selectors": [{"cel": {"expression": f'device.attributes["{NVIDIA}"].model == "MIG"'}}]}


def test_records_with_settings_of_their_own_are_read_back_as_they_were_written(
    kube: Any,
) -> None:
    kube.node("n1")
    kube.publish("n1", kube.device("a"))
    kube.submit("p", kube.request())
    assert kube.world.logs["pool"] == [
        decode_record(encode_record(one)) for one in kube.world.logs["pool"]
    ]
    appended = [one.record for one in kube.world.effects if isinstance(one, Append)]
    assert appended == kube.world.logs["pool"][1:]


def test_a_pod_that_comes_back_finds_its_claims_as_they_were(kube: Any) -> None:
    """State rebuilt from ``ResourceClaim.status`` equals the state held."""
    kube.node("n1")
    kube.publish("n1", kube.device("a"), kube.device("b"))
    kube.submit("p", kube.request(allocationMode="All"))
    decided = kube.world.state.device_usage.of_claim("claim-p")
    decision = kube.world.decisions()["p"]
    status = {"allocation": allocation_to(decision.claims[0].allocation)}
    kube.claim(
        "p",
        {
            "spec": {"devices": {"requests": [kube.request(allocationMode="All")]}},
            "status": status,
        },
    )
    assert kube.world.state.device_usage.of_claim("claim-p") == decided
    kube.world.see(PodObserved(revision=kube.world.next(), pod=kube.world.a_pod("p")))
    assert not kube.world.oversold()


def test_what_is_written_is_what_an_api_server_takes(
    kube: Any, partitions: Any, counters: Any
) -> None:
    kube.node("n1", labels={"rack": "a"})
    kube.publish("sets", driver=NVIDIA, pool="n1", count=2, nodeName="n1", sharedCounters=counters)
    kube.publish("n1", *partitions, driver=NVIDIA, count=2)
    memory = {"capacity": {"memory": {"value": "40Gi"}}, "allowMultipleAllocations": True}
    kube.publish("shared", kube.device("card", **memory), nodeName="n1")
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a"]}]}
    selector = {"nodeSelectorTerms": [term]}
    net = kube.device("port", "NIC", bindingConditions=["up"], bindingFailureConditions=["down"])
    kube.publish("net", net, driver=NVIDIA, nodeSelector=selector)

    half = kube.first_of(kube.request("half", NVIDIA, **MIG), name="part")
    nic = {"selectors": [{"cel": {"expression": f'device.attributes["{NVIDIA}"].model == "NIC"'}}]}
    ours = {"selectors": [{"cel": {"expression": f'device.driver == "{names.DRIVER}"'}}]}
    share = {"capacity": {"requests": {"memory": "1Gi"}}, **ours}
    tolerations = [{"key": "any", "operator": "Exists", "tolerationSeconds": 9}]
    wishes = {
        "p": [half, kube.request("share", **share)],
        "q": [kube.request("net", NVIDIA, tolerations=tolerations, **nic)],
        "r": [kube.request("all", NVIDIA, allocationMode="All", adminAccess=True, **nic)],
    }
    opaque = {"driver": NVIDIA, "parameters": {"channel": 1}}
    for name, requests in wishes.items():
        gated = replace(kube.world.a_pod(name), scheduler="default-scheduler", gated=True)
        config = [{"requests": [requests[0]["name"]], "opaque": opaque}]
        kube.submit(name, *requests, pod=gated, config=config)
        allocation = allocation_to(kube.allocation(name), timestamp_unix_s=1.0)
        claim_names = {one["name"] for one in requests} | {"part/half"}
        errors = status_errors({"allocation": allocation}, {}, claim_names, deleting=False)
        assert not errors, [str(error) for error in errors]
    assert allocation_to(kube.allocation("q"))["nodeSelector"] == selector
