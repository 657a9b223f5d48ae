"""Which cards each container got, in the pod's annotation."""

import json

import pytest

from dray.api.claims import AllocatedDevice, Allocation, Claim, ClaimSpec
from dray.api.devices import Device, DeviceId
from dray.api.names import (
    CLAIM_REFERENCE,
    CONTAINER_GPU_IDS,
    CONTAINER_GPUS,
    DRIVER,
    INJECT_CONTAINER,
    TFLOPS_REQUEST,
)
from dray_claim_controller.report.decisions.container_gpus import (
    asks_by_container,
    container_gpus,
    says,
)


def container(name, *requests):
    uses = [{"name": CLAIM_REFERENCE, **({"request": one} if one else {})} for one in requests]
    return {"name": name, "resources": {"claims": [{"name": "other"}, *uses]}}


def pod(*containers, **annotations):
    return {
        "metadata": {"annotations": annotations},
        "spec": {
            "initContainers": [container("init", "gpu-a")],
            "containers": list(containers),
            "resourceClaims": [
                {"name": name, "resourceClaimTemplateName": "t"}
                for name in (CLAIM_REFERENCE, "other")
            ],
        },
        "status": {
            "resourceClaimStatuses": [
                {"name": CLAIM_REFERENCE, "resourceClaimName": "claim"},
                {"name": "other", "resourceClaimName": "others"},
            ]
        },
    }


def claim(claim_name, *held):
    devices = tuple(
        AllocatedDevice(request, DeviceId(DRIVER, "n1", card)) for request, card in held
    )
    made = Allocation(devices, "n1")
    return Claim(claim_name, "ns", claim_name, 1, "pool", ClaimSpec(), allocation=made)


def published(device):
    known = {"gpu-1": "GPU-1", "gpu-2": "GPU-2"}
    uuid = known.get(device.device)
    return Device(device.device, {"uuid": uuid}) if uuid else None


def test_each_container_has_the_cards_of_its_requests():
    made = pod(container("main", "gpu-a", "gpu-b/sub"), container("all", ""), {"name": "none"})
    claims = [
        claim("claim", ("gpu-a", "gpu-1"), ("gpu-b/sub", "gpu-2"), ("gpu-b/sub", "gpu-1")),
        claim("others", ("gpu-a", "gpu-3")),
    ]

    text = container_gpus(made, claims, published)
    assert json.loads(text) == {
        "init": ["GPU-1"],
        "main": ["GPU-1"],
        "all": ["GPU-1", "GPU-2"],
        "none": [],
    }


def test_a_subrequest_counts_as_its_request():
    made = pod(container("main", "gpu-b"))
    text = container_gpus(made, [claim("claim", ("gpu-b/sub", "gpu-2"))], published)

    assert json.loads(text)["main"] == ["GPU-2"]


def test_a_card_that_is_gone_goes_by_its_name():
    made = pod(container("main", "gpu-a"))
    text = container_gpus(made, [claim("claim", ("gpu-a", "gpu-9"))], published)

    assert json.loads(text)["main"] == ["gpu-9"]


@pytest.mark.parametrize(
    ("name", "asks"), [(CONTAINER_GPUS, True), (INJECT_CONTAINER, True), (TFLOPS_REQUEST, False)]
)
def test_only_pods_that_asked_by_container_are_annotated(name, asks):
    assert asks_by_container(pod(**{name: "x"})) is asks


def test_what_is_there_already_is_not_written_again():
    text = '{"main":["GPU-1"]}'

    assert says(pod(**{CONTAINER_GPU_IDS: text}), text)
    assert not says(pod(), text)
