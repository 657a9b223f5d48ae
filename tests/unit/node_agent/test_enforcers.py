"""What an enforcer adds to a container, and what an event says of it."""

import pytest
from tests.unit.node_agent.test_preparing_rules import claim, limits, result

from dray.api.enforcement import ENFORCERS, Enforcement, guarantee
from dray_node_agent.decisions.claim_devices import (
    NotPreparedError,
    device_uses,
    prepared_claim,
)
from dray_node_agent.decisions.inventory import NodeInventory, NodeState, slices
from dray_node_agent.decisions.mps_folders import FOLDER
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus

SNAPSHOT = SimulatedGpus("n1", "A100", 3).read()


def prepared(made, enforcement, visible=None):
    inventory = NodeInventory(SNAPSHOT, NodeState("n1", enforcement=enforcement))
    uses = device_uses(made, made.uid, "n1", inventory.published_gpus)
    return prepared_claim(made, uses, inventory, "", visible or {})


def edits(made, enforcement):
    (device,) = prepared(made, enforcement).cdi["devices"]
    return device["containerEdits"]


LIMITED = claim(
    result(), config=(limits(kind="GPUShareConfig", vramLimit="9Gi", computePercentLimit="30"),)
)


def test_the_pools_enforcer_goes_before_the_isolation_of_a_claim():
    soft = claim(result(), config=(limits(vramLimit="9Gi", isolation="soft"),))
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=9216m" in edits(soft, Enforcement())["env"]
    for name in ("none", "timeslice", "mig"):
        env = edits(soft, Enforcement(enforcer=name))["env"]
        assert not any(entry.startswith("CUDA") for entry in env)
    env = edits(LIMITED, Enforcement(enforcer="env"))["env"]
    assert {"CUDA_DEVICE_MEMORY_LIMIT_0=9216m", "CUDA_DEVICE_SM_LIMIT=30"} <= set(env)


def test_a_client_of_mps_gets_its_limits_and_the_folders_of_its_gpus_daemon():
    made = edits(LIMITED, Enforcement(enforcer="mps"))
    device = prepared(LIMITED, Enforcement()).devices[0].device
    assert {
        "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=9216M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30",
    } <= set(made["env"])
    assert {one["containerPath"]: one["hostPath"] for one in made["mounts"]} == {
        "/tmp/nvidia-mps": f"{FOLDER}/{device}/pipe",
        "/dev/shm": f"{FOLDER}/{device}/shm",
    }


@pytest.mark.parametrize("asked", [{"computePercentLimit": "90"}, {"tflopsLimit": "300"}])
def test_limits_of_a_claim_are_cut_to_what_the_daemon_allows(asked):
    config = limits(kind="GPUShareConfig", vramLimit="9Gi", **asked)
    mps = Enforcement(enforcer="mps", mps_threads_percent=50, mps_memory="8Gi")
    env = dict(one.split("=", 1) for one in edits(claim(result(), config=(config,)), mps)["env"])
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=8192M"
    assert env["TENSOR_FUSION_VRAM_LIMIT"] == str(8 * 2**30)


def test_a_container_with_several_gpus_under_mps_is_refused_and_several_containers_are_not():
    first, second, _ = NodeInventory(SNAPSHOT, NodeState("n1")).published_gpus
    two = claim(result(first), result(second, request="other"))
    mps = Enforcement(enforcer="mps")
    with pytest.raises(NotPreparedError, match="a container gets several GPUs under MPS"):
        prepared(two, mps)
    ids = [device["cdi_id"] for device in [*map(_id_of, prepared(two, Enforcement()).devices)]]
    visible = {one: (f"GPU-{number}",) for number, one in enumerate(ids)}
    assert len(prepared(two, mps, visible).devices) == 2
    with pytest.raises(NotPreparedError):
        prepared(two, mps, dict.fromkeys(ids))


def _id_of(device):
    return {"cdi_id": device.cdi_ids[0]}


def test_an_administrators_look_at_a_gpu_is_not_a_client_of_mps():
    looks = claim(result(admin_access=True))
    assert "mounts" not in edits(looks, Enforcement(enforcer="mps"))


def test_with_mig_only_instances_are_published():
    instance = SNAPSHOT.gpus[0].__class__(
        uuid="MIG-1", product="NVIDIA A100", memory_bytes=2**33, parent_uuid=SNAPSHOT.gpus[0].uuid
    )
    snapshot = SNAPSHOT.__class__((*SNAPSHOT.gpus, instance))

    def published(enforcement):
        (first, *_) = slices(snapshot, NodeState("n1", enforcement=enforcement), generation=1)
        return [one["name"] for one in first["spec"]["devices"]]

    assert published(Enforcement(enforcer="mig")) == ["mig-1"]
    assert len(published(Enforcement())) == 4


@pytest.mark.parametrize(
    ("enforcement", "isolation", "text"),
    [
        (Enforcement(), "", ""),
        (Enforcement(), "hard", ""),
        (Enforcement(), "soft", "limiter library"),
        (Enforcement(enforcer="none"), "soft", ""),
        (Enforcement(enforcer="timeslice"), "", "nothing limits their memory"),
        (Enforcement(enforcer="mps"), "", "held by nothing"),
        (
            Enforcement(enforcer="mps", mps_threads_percent=50, mps_memory="8Gi"),
            "",
            "held by the MPS daemon's 50 % of the threads and 8Gi of memory",
        ),
        (Enforcement(enforcer="mig"), "", "keeps MIG instances apart"),
    ],
)
def test_the_event_says_what_holds_a_pod_to_its_share(enforcement, isolation, text):
    words = guarantee(enforcement, isolation)
    assert text in words if text else words == ""


def test_every_enforcer_is_known_to_the_custom_resource():
    from tools.generate.resources import GPUPoolSpec

    for name in ENFORCERS:
        assert GPUPoolSpec.model_validate({"enforcer": name}).enforcer == name
