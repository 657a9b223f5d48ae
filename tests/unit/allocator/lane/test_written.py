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


def test_records_with_settings_of_their_own_are_read_back_as_they_were_written(lane: Any) -> None:
    lane.node("n1")
    lane.publish("n1", lane.device("a"))
    lane.submit("p", lane.request())
    assert lane.world.logs["pool"] == [
        decode_record(encode_record(one)) for one in lane.world.logs["pool"]
    ]
    appended = [one.record for one in lane.world.effects if isinstance(one, Append)]
    assert appended == lane.world.logs["pool"][1:]


def test_a_pod_that_comes_back_finds_its_claims_as_they_were(lane: Any) -> None:
    """State rebuilt from ``ResourceClaim.status`` equals the state held."""
    lane.node("n1")
    lane.publish("n1", lane.device("a"), lane.device("b"))
    lane.submit("p", lane.request(allocationMode="All"))
    decided = lane.world.state.device_usage.of_claim("claim-p")
    decision = lane.world.decisions()["p"]
    status = {"allocation": allocation_to(decision.claims[0].allocation)}
    lane.claim(
        "p",
        {"spec": {"devices": {"requests": [lane.request(allocationMode="All")]}}, "status": status},
    )
    assert lane.world.state.device_usage.of_claim("claim-p") == decided
    lane.world.see(PodObserved(revision=lane.world.next(), pod=lane.world.a_pod("p")))
    assert not lane.world.oversold()


def test_what_is_written_is_what_an_api_server_takes(
    lane: Any, partitions: Any, counters: Any
) -> None:
    lane.node("n1", labels={"rack": "a"})
    lane.publish("sets", driver=NVIDIA, pool="n1", count=2, nodeName="n1", sharedCounters=counters)
    lane.publish("n1", *partitions, driver=NVIDIA, count=2)
    memory = {"capacity": {"memory": {"value": "40Gi"}}, "allowMultipleAllocations": True}
    lane.publish("shared", lane.device("card", **memory), nodeName="n1")
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a"]}]}
    selector = {"nodeSelectorTerms": [term]}
    net = lane.device("port", "NIC", bindingConditions=["up"], bindingFailureConditions=["down"])
    lane.publish("net", net, driver=NVIDIA, nodeSelector=selector)

    half = lane.first_of(lane.request("half", NVIDIA, **MIG), name="part")
    nic = {"selectors": [{"cel": {"expression": f'device.attributes["{NVIDIA}"].model == "NIC"'}}]}
    ours = {"selectors": [{"cel": {"expression": f'device.driver == "{names.DRIVER}"'}}]}
    share = {"capacity": {"requests": {"memory": "1Gi"}}, **ours}
    tolerations = [{"key": "any", "operator": "Exists", "tolerationSeconds": 9}]
    wishes = {
        "p": [half, lane.request("share", **share)],
        "q": [lane.request("net", NVIDIA, tolerations=tolerations, **nic)],
        "r": [lane.request("all", NVIDIA, allocationMode="All", adminAccess=True, **nic)],
    }
    opaque = {"driver": NVIDIA, "parameters": {"channel": 1}}
    for name, requests in wishes.items():
        gated = replace(lane.world.a_pod(name), scheduler="default-scheduler", gated=True)
        config = [{"requests": [requests[0]["name"]], "opaque": opaque}]
        lane.submit(name, *requests, pod=gated, config=config)
        allocation = allocation_to(lane.allocation(name), timestamp_unix_s=1.0)
        claim_names = {one["name"] for one in requests} | {"part/half"}
        errors = status_errors({"allocation": allocation}, {}, claim_names, deleting=False)
        assert not errors, [str(error) for error in errors]
    assert allocation_to(lane.allocation("q"))["nodeSelector"] == selector
