"""What a claim means on a node: verification, the last line of defence, the environment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dray.api.claims import AllocatedDevice, Allocation, Claim, ClaimSpec
from dray.api.devices import DeviceId, OpaqueConfig
from dray.api.names import DRIVER
from dray_node_agent.decisions.claim_devices import (
    DeviceFullError,
    NotPreparedError,
    additions,
    device_uses,
    prepared_claim,
    require_capacity,
)
from dray_node_agent.decisions.inventory import NodeInventory, NodeState
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus

INVENTORY = NodeInventory(SimulatedGpus("n1", "A100", 3).read(), NodeState("n1"))
CARDS = INVENTORY.published_gpus
FIRST, SECOND, _ = CARDS


def result(device=FIRST, *, request="gpu", tflops="100", pool="n1", driver=DRIVER, **more):
    consumed = {"virtual_tflops": tflops, "virtual_vram": "1Gi"} if tflops else {}
    more.setdefault("share_id", f"share-{request}")
    return AllocatedDevice(request, DeviceId(driver, pool, device), consumed=consumed, **more)


def claim(*results, uid="u1", config=(), allocated=True):
    allocation = Allocation(results, "n1", tuple(config)) if allocated else None
    return Claim(uid, "default", f"claim-{uid}", 1, "pool", ClaimSpec(), allocation=allocation)


def environment(*arguments):
    return additions(*arguments).env


def uses(made):
    return device_uses(made, made.uid, "n1", CARDS)


def prepared(made):
    return prepared_claim(made, device_uses(made, made.uid, "n1", CARDS), INVENTORY, "")


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (claim(allocated=False), "is not allocated"),
        (claim(result(driver="other.example")), "holds no device of driver"),
        (claim(result(pool="n2")), "which are not on node n1"),
        (claim(result("gpu-absent")), "has no such GPU"),
    ],
)
def test_a_claim_that_is_not_for_this_node_is_refused(made, problem):
    with pytest.raises(NotPreparedError, match=problem):
        device_uses(made, "u1", "n1", CARDS)


def test_another_claim_of_the_same_name_is_refused():
    with pytest.raises(NotPreparedError, match="it was recreated"):
        device_uses(claim(result()), "old-uid", "n1", CARDS)


def test_other_drivers_devices_of_the_claim_are_left_to_them():
    made = claim(result(), result("their-card", driver="other.example"))
    assert [one.published.device for one in device_uses(made, "u1", "n1", CARDS)] == [FIRST]


def test_two_results_on_one_card_are_one_cdi_device_and_two_answers():
    made = prepared(claim(result(request="a"), result(request="b/sub")))
    assert [device.request for device in made.devices] == ["a", "b"]
    assert len({device.cdi_ids for device in made.devices}) == 1
    assert len(made.cdi["devices"]) == 1
    assert made.env["TENSOR_FUSION_TFLOPS_REQUEST"] == "200"


def test_a_card_is_shared_up_to_its_virtual_capacity():
    held = [prepared(claim(result(tflops="200"), uid="a"))]
    wanted = claim(result(tflops="112"), uid="b")
    require_capacity(device_uses(wanted, "b", "n1", CARDS), held, CARDS)
    wanted = claim(result(tflops="113"), uid="b")
    with pytest.raises(NotPreparedError, match=r"313 of 312 virtual_tflops.*default/claim-a"):
        require_capacity(device_uses(wanted, "b", "n1", CARDS), held, CARDS)


def test_a_result_that_states_no_capacity_takes_all_of_the_card():
    held = [prepared(claim(result(tflops=""), uid="a"))]
    with pytest.raises(NotPreparedError, match="313 of 312"):
        require_capacity(
            device_uses(claim(result(tflops="1"), uid="b"), "b", "n1", CARDS), held, CARDS
        )
    require_capacity(device_uses(claim(result(SECOND), uid="b"), "b", "n1", CARDS), held, CARDS)


def test_a_card_held_without_a_share_is_held_whole():
    held = [prepared(claim(result(tflops="1", share_id=None), uid="a"))]
    with pytest.raises(NotPreparedError, match="is allocated as a whole"):
        require_capacity(
            device_uses(claim(result(tflops="1"), uid="b"), "b", "n1", CARDS), held, CARDS
        )


def test_admin_access_takes_no_capacity_from_others():
    watcher = prepared(claim(result(tflops="312", admin_access=True), uid="a"))
    require_capacity(
        device_uses(claim(result(tflops="312"), uid="b"), "b", "n1", CARDS), [watcher], CARDS
    )
    full = prepared(claim(result(tflops="312"), uid="b"))
    looking = claim(result(tflops="312", admin_access=True), uid="c")
    require_capacity(device_uses(looking, "c", "n1", CARDS), [full], CARDS)


@given(st.lists(st.tuples(st.sampled_from(list(CARDS)), st.integers(1, 312)), max_size=12))
def test_whatever_comes_no_card_is_ever_given_out_beyond_its_budget(asks):
    held, given_out = [], dict.fromkeys(CARDS, 0)
    for number, (device, tflops) in enumerate(asks):
        made = claim(result(device, tflops=str(tflops)), uid=f"u{number}")
        try:
            require_capacity(device_uses(made, made.uid, "n1", CARDS), held, CARDS)
        except NotPreparedError:
            assert given_out[device] + tflops > CARDS[device].virtual_tflops.value
            continue
        held.append(prepared(made))
        given_out[device] += tflops
        assert given_out[device] <= CARDS[device].virtual_tflops.value


def test_every_card_of_a_claim_shows_all_its_cards():
    made = claim(result(FIRST), result(SECOND))
    every = device_uses(made, "u1", "n1", CARDS)
    entry = prepared_claim(made, every, INVENTORY, "")
    seen = [one for device in entry.cdi["devices"] for one in device["containerEdits"]["env"]]
    names = ",".join(CARDS[name].gpu.uuid for name in (FIRST, SECOND))
    assert seen.count(f"NVIDIA_VISIBLE_DEVICES={names}") == 2


def test_a_gpu_for_which_no_list_is_right_names_none():
    made = claim(result(FIRST))
    (use,) = device_uses(made, "u1", "n1", CARDS)
    env = environment(use, None, made, "low")
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "TENSOR_FUSION_GPU_COUNT" not in env


def limits(source="FromClaim", requests=(), driver=DRIVER, kind="GPULimits", **fields):
    return OpaqueConfig(driver, {"kind": kind, **fields}, tuple(requests), source)


def test_limits_come_from_opaque_config_and_the_claims_win_over_the_classs():
    config = (
        limits(tflopsLimit="300", qos="critical"),
        limits("FromClass", tflopsLimit="111", vramLimit="9Gi", isolation="soft"),
        limits(driver="other.example", tflopsLimit="1"),
        limits(requests=["elsewhere"], tflopsLimit="3"),
    )
    made = claim(result(), config=config)
    every = device_uses(made, "u1", "n1", CARDS)
    env = environment(every[0], ("GPU-1",), made, "low")
    assert env["TENSOR_FUSION_TFLOPS_LIMIT"] == "300"
    assert env["TENSOR_FUSION_VRAM_LIMIT"] == str(9 * 2**30)
    assert env["TENSOR_FUSION_ISOLATION"] == "soft"
    assert env["TENSOR_FUSION_QOS"] == "critical"


def test_limits_are_at_most_what_the_card_has():
    made = claim(result(), config=(limits(tflopsLimit="9000", vramLimit="1Ti"),))
    (use,) = device_uses(made, "u1", "n1", CARDS)
    env = environment(use, ("GPU-1",), made, "low")
    card = use.published
    assert env["TENSOR_FUSION_TFLOPS_LIMIT"] == str(card.model.tflops)
    assert env["TENSOR_FUSION_VRAM_LIMIT"] == str(card.gpu.memory_bytes)


def test_variables_of_a_limiter_library_are_set_where_the_isolation_is_soft():
    soft = limits(kind="GPUShareConfig", vramLimit="9Gi", tflopsLimit="78", isolation="soft")
    made = claim(result(), config=(soft,))
    (use,) = device_uses(made, "u1", "n1", CARDS)
    uuid = use.published.gpu.uuid
    env = environment(use, ("GPU-other", uuid), made, "low")
    assert env["CUDA_DEVICE_MEMORY_LIMIT_1"] == "9216m"
    assert env["CUDA_DEVICE_SM_LIMIT"] == str(78 * 100 // use.published.model.tflops)
    assert "CUDA_DEVICE_SM_LIMIT" in environment(use, None, made, "low")
    assert not any(
        name.startswith("CUDA_DEVICE_MEMORY") for name in environment(use, None, made, "")
    )
    for isolation in ("shared", "hard", ""):
        made = claim(result(), config=(limits(vramLimit="9Gi", isolation=isolation),))
        assert not any(name.startswith("CUDA") for name in environment(use, (uuid,), made, "low"))


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"kind": "Other"}, "kind is 'Other': expected GPUShareConfig"),
        (
            {"kind": "GPUShareConfig", "apiVersion": "tensor-fusion.ai/v9"},
            "apiVersion is 'tensor-fusion.ai/v9': expected tensor-fusion.ai/v1",
        ),
        ({"kind": "GPUShareConfig", "vramLimit": "lots"}, "vramLimit is 'lots': expected bytes as"),
        ({"kind": "GPUShareConfig", "computePercentLimit": 101}, "above 0 and at most 100"),
        ({"kind": "GPUShareConfig", "isolation": "jail"}, "expected one of shared, soft, hard"),
        (
            {"kind": "GPUShareConfig", "container": "a b"},
            "container is 'a b': expected the name of a container",
        ),
    ],
)
def test_a_configuration_that_can_t_be_used_is_refused(parameters, why):
    made = claim(result(), config=(OpaqueConfig(DRIVER, parameters),))
    with pytest.raises(NotPreparedError) as refused:
        prepared(made)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("tflops", "variable"), [("98900m", "98.9"), ("1e2", "100"), ("0.5", "0.5")]
)
def test_amounts_in_the_environment_are_plain_numbers(tflops, variable):
    limited = claim(result(tflops=tflops), config=(limits(tflopsLimit=tflops),))
    every = device_uses(limited, "u1", "n1", CARDS)
    env = environment(every[0], ("GPU-1",), limited, "low")
    assert env["TENSOR_FUSION_TFLOPS_REQUEST"] == variable
    assert env["TENSOR_FUSION_TFLOPS_LIMIT"] == variable


def test_without_config_the_nodes_quality_of_service_holds():
    made = claim(result())
    every = device_uses(made, "u1", "n1", CARDS)
    env = environment(every[0], ("GPU-1",), made, "low")
    assert env["TENSOR_FUSION_QOS"] == "low"
    assert "TENSOR_FUSION_TFLOPS_LIMIT" not in env


def test_a_card_and_its_mig_instance_are_never_prepared_at_the_same_time():
    card = INVENTORY.published_gpus[FIRST].gpu
    instance = replace(card, uuid="MIG-1", parent_uuid=card.uuid, compute_slices=1)
    split = NodeInventory(replace(INVENTORY.snapshot, gpus=(card, instance)), INVENTORY.state)
    cards = split.published_gpus
    whole = claim(result(FIRST, tflops="1"), uid="a")
    part = claim(result("mig-1", tflops="1"), uid="b")
    for one, other in ((whole, part), (part, whole)):
        held = prepared_claim(one, device_uses(one, one.uid, "n1", cards), split, "")
        wanted = device_uses(other, other.uid, "n1", cards)
        with pytest.raises(DeviceFullError, match="what is in use of the same card"):
            require_capacity(wanted, [held], cards)
