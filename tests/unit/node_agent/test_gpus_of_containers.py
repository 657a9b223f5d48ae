"""Containers with requests of their own see their own GPUs and amounts, and no others."""

from dray.api.claims import AllocatedDevice, Allocation, Claim, ClaimSpec
from dray.api.devices import DeviceId, OpaqueConfig
from dray.api.names import API_VERSION, DRIVER
from dray_node_agent.decisions.claim_devices import (
    NotPreparedError,
    device_uses,
    prepared_claim,
    require_capacity,
)
from dray_node_agent.decisions.inventory import NodeInventory, NodeState
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus

INVENTORY = NodeInventory(SimulatedGpus("n1", "A100", 3).read(), NodeState("n1"))
CARDS = INVENTORY.published_gpus
FIRST, SECOND, THIRD = CARDS


def result(request, device, tflops):
    consumed = {"virtual_tflops": tflops, "virtual_vram": "1Gi"}
    return AllocatedDevice(request, DeviceId(DRIVER, "n1", device), f"share-{request}", consumed)


def config(container, *requests, **limits):
    fields = {"apiVersion": API_VERSION, "kind": "GPULimits", **limits}
    if container:
        fields["container"] = container
    return OpaqueConfig(DRIVER, fields, requests)


CLAIM = Claim(
    "u1",
    "default",
    "claim",
    1,
    "pool",
    ClaimSpec(),
    allocation=Allocation(
        (
            result("gpu-request", FIRST, "10"),
            result("gpu-request-main", FIRST, "100"),
            result("gpu-request-main", SECOND, "100"),
            result("gpu-request-side", SECOND, "20"),
        ),
        "n1",
        (
            config("", "gpu-request", qos="low"),
            config("main", "gpu-request-main", tflopsLimit="200"),
            config("side", "gpu-request-side", computePercentLimit="20"),
        ),
    ),
)


def prepared(claim=CLAIM):
    return prepared_claim(claim, device_uses(claim, claim.uid, "n1", CARDS), INVENTORY, "")


def environment_of(request):
    """What a container that refers to ``request`` gets, as a runtime applies it."""
    made = prepared()
    edits = {one["name"]: one["containerEdits"]["env"] for one in made.cdi["devices"]}
    env = {}
    for device in made.devices:
        if device.request == request:
            for cdi_id in device.cdi_ids:
                env |= dict(entry.split("=", 1) for entry in edits[cdi_id.partition("=")[2]])
    return env


def uuids(*devices):
    return ",".join(CARDS[device].gpu.uuid for device in devices)


def test_a_container_sees_its_own_cards():
    assert environment_of("gpu-request")["NVIDIA_VISIBLE_DEVICES"] == uuids(FIRST)
    assert environment_of("gpu-request-main")["NVIDIA_VISIBLE_DEVICES"] == uuids(FIRST, SECOND)
    assert environment_of("gpu-request-side")["NVIDIA_VISIBLE_DEVICES"] == uuids(SECOND)


def test_amounts_and_limits_are_its_own():
    main, side = environment_of("gpu-request-main"), environment_of("gpu-request-side")

    assert (main["TENSOR_FUSION_TFLOPS_REQUEST"], main["TENSOR_FUSION_GPU_COUNT"]) == ("100", "2")
    assert (side["TENSOR_FUSION_TFLOPS_REQUEST"], side["TENSOR_FUSION_GPU_COUNT"]) == ("20", "1")
    assert main["TENSOR_FUSION_TFLOPS_LIMIT"] == "200"
    assert "TENSOR_FUSION_TFLOPS_LIMIT" not in side
    assert side["TENSOR_FUSION_COMPUTE_PERCENT_LIMIT"] == "20"
    assert environment_of("gpu-request")["TENSOR_FUSION_QOS"] == "low"
    assert side["TENSOR_FUSION_QOS"] == "medium"


def test_every_part_has_a_name_of_its_own():
    names = [one["name"] for one in prepared().cdi["devices"]]

    assert names == [
        f"u1-{FIRST}",
        f"u1-{FIRST}.main",
        f"u1-{SECOND}.main",
        f"u1-{SECOND}.side",
    ]


def test_all_parts_on_a_card_count_against_its_budget():
    held = [prepared()]
    full = Claim("u2", "default", "other", 1, "pool", ClaimSpec())

    def fits(tflops):
        made = Allocation((result("gpu", FIRST, tflops),), "n1")
        wanted = Claim(full.uid, "default", "other", 1, "pool", full.spec, allocation=made)
        try:
            require_capacity(device_uses(wanted, "u2", "n1", CARDS), held, CARDS)
        except NotPreparedError:
            return False
        return True

    assert fits("202")
    assert not fits("203")
