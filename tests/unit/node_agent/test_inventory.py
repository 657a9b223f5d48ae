"""Slices in valid form: what the API server's validation asks, for any GPUs."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dray.api.pods import Node
from dray.api.quantities import parse_quantity
from dray_node_agent.decisions.device_use import devices_in_use
from dray_node_agent.decisions.gpus import Gpu, GpuSnapshot, device_name, with_problems
from dray_node_agent.decisions.inventory import (
    NodeInventory,
    NodeState,
    semantic_version,
    shortened,
    slices,
    unhealthy_devices,
)
from dray_node_agent.decisions.prepared_claim import PreparedClaim, PreparedDevice
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus

DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
SEMANTIC_VERSION = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}")
C_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
SEED_ATTRIBUTES = {
    "model",
    "pool_name",
    "pod_namespace",
    "uuid",
    "phase",
    "used_by",
    "node_name",
    "qos",
    "node_total_tflops",
    "node_total_vram",
    "node_total_gpus",
    "node_managed_gpus",
    "node_virtual_tflops",
    "node_virtual_vram",
}

gpus = st.builds(
    Gpu,
    uuid=st.uuids().map(lambda uuid: f"GPU-{uuid}"),
    product=st.sampled_from(["NVIDIA A100-SXM4-80GB", "Tesla T4", "Some New Card", "x" * 90]),
    memory_bytes=st.integers(min_value=0, max_value=2**40),
    cores=st.integers(min_value=0, max_value=30_000),
    max_sm_clock_mhz=st.integers(min_value=0, max_value=4_000),
    health_error=st.sampled_from(["", "xid-79", "row remapping failed: ünd more " * 5]),
    pci_bus_id=st.just("0000:3b:00.0"),
    pcie_root=st.just("pci0000:3a"),
    numa_node=st.sampled_from([None, 0]),
    nvlink_domain=st.just("0000:3b:00.0"),
    brand=st.just("Nvidia"),
    architecture=st.just("Ampere"),
    compute_capability=st.just("8.0"),
    ecc=st.sampled_from([None, True]),
)


@st.composite
def with_instances(draw, cards):
    """Cards, each with up to seven MIG instances."""
    found = []
    for card in draw(cards):
        found.append(card)
        for number in range(draw(st.sampled_from([0, 0, 0, 1, 7]))):
            found.append(
                replace(
                    card,
                    uuid=f"MIG-{number}{card.uuid[5:]}",
                    parent_uuid=card.uuid,
                    mig_profile="1g.5gb",
                    compute_slices=1,
                )
            )
    return tuple(found)


labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
ratios = st.sampled_from(["1", "1.0", "1.5", "2500m", "3", "1.0000001", "10"])
states = st.builds(
    NodeState,
    name=st.lists(labels, min_size=1, max_size=9).map(".".join),
    uid=st.just("node-uid"),
    pool=st.one_of(st.just(""), labels),
    owner=st.sampled_from(["dray", "kube-scheduler"]),
    qos=st.sampled_from(["low", "medium", "high", "critical"]),
    tflops_ratio=ratios,
    vram_ratio=ratios,
)
readings = st.builds(
    GpuSnapshot,
    gpus=with_instances(st.lists(gpus, max_size=140, unique_by=lambda gpu: gpu.uuid)),
    driver_version=st.sampled_from(["535.104.05", "simulated", ""]),
    cuda_version=st.sampled_from(["12.4", ""]),
)


@settings(max_examples=40)
@given(readings, states, st.integers(min_value=1, max_value=2**40))
def test_every_reading_makes_slices_that_the_api_server_accepts(snapshot, state, generation):
    made = slices(snapshot, state, generation=generation)
    assert bool(made) == bool(snapshot.gpus)
    names = [one["metadata"]["name"] for one in made]
    assert len(set(names)) == len(names)
    assert all(DNS_SUBDOMAIN.fullmatch(name) for name in names if len(name) <= 253)
    devices = [device for one in made for device in one["spec"].get("devices", ())]
    sets = [counters for one in made for counters in one["spec"].get("sharedCounters", ())]
    assert len(devices) == len(snapshot.gpus)
    assert len({device["name"] for device in devices}) == len(devices)
    for one in made:
        spec = one["spec"]
        assert spec["pool"] == {
            "name": state.name,
            "generation": generation,
            "resourceSliceCount": len(made),
        }
        assert ("devices" in spec) != ("sharedCounters" in spec)
        limited = any(
            device.get("taints") or device.get("consumesCounters")
            for device in spec.get("devices", ())
        )
        assert len(spec.get("devices", ())) <= (64 if limited else 128)
        assert len(spec.get("sharedCounters", ())) <= 8
        assert all(LABEL_VALUE.fullmatch(text) for text in one["metadata"]["labels"].values())
    set_names = [counters["name"] for counters in sets]
    assert len(set(set_names)) == len(set_names)
    assert all(DNS_LABEL.fullmatch(name) for name in set_names)
    for device in devices:
        _check_device(device)
        for use in device.get("consumesCounters", ()):
            assert use["counterSet"] in set_names


def _check_device(device):
    assert DNS_LABEL.fullmatch(device["name"])
    attributes, capacity = device["attributes"], device["capacity"]
    assert len(attributes) + len(capacity) <= 32
    assert attributes.keys() >= SEED_ATTRIBUTES
    names = [name.removeprefix("resource.kubernetes.io/") for name in (*attributes, *capacity)]
    assert all(C_IDENTIFIER.fullmatch(name) for name in names)
    for value in attributes.values():
        assert len(value) == 1
        assert len(str(value.get("string", ""))) <= 64
        assert SEMANTIC_VERSION.fullmatch(value.get("version", "1.0.0"))
    for amount in capacity.values():
        _check_policy(amount)
    for taint in device.get("taints", ()):
        assert LABEL_VALUE.fullmatch(taint["value"])


def _check_policy(amount):
    """validateRequestPolicy: a default among the values, or within the range."""
    policy = amount["requestPolicy"]
    default, value = parse_quantity(policy["default"]), parse_quantity(amount["value"])
    if "validValues" in policy:
        assert default in [parse_quantity(text) for text in policy["validValues"]]
        assert all(parse_quantity(text) <= value for text in policy["validValues"])
    else:
        minimum = parse_quantity(policy["validRange"]["min"])
        assert minimum <= default
        assert minimum <= value


@given(gpus.filter(lambda gpu: gpu.memory_bytes), ratios)
def test_virtual_is_physical_times_ratio_in_whole_units(gpu, ratio):
    state = NodeState("n", tflops_ratio=ratio, vram_ratio=ratio)
    (made,) = slices(GpuSnapshot((gpu,)), state, generation=1)
    capacity = made["spec"]["devices"][0]["capacity"]
    times = parse_quantity(ratio).nano
    for physical, virtual in (("tflops", "virtual_tflops"), ("vram", "virtual_vram")):
        whole = parse_quantity(capacity[physical]["value"]).value * times // 10**9
        assert parse_quantity(capacity[virtual]["value"]).value == max(whole, 1)


def device(state: NodeState, **gpu) -> dict:
    """The one device of a node with an A100."""
    made = Gpu("GPU-aB", "NVIDIA A100-SXM4-40GB", 40 * 2**30, **gpu)
    (one,) = slices(GpuSnapshot((made,)), state, generation=1)
    return one["spec"]["devices"][0]


def test_the_seeds_card_is_published_with_the_seeds_figures():
    made = device(NodeState("node-01", pool="production-pool", qos="high", tflops_ratio="1.5"))
    assert made["name"] == "gpu-ab"
    assert made["attributes"]["model"] == {"string": "A100"}
    assert made["attributes"]["uuid"] == {"string": "GPU-aB"}
    assert made["attributes"]["phase"] == {"string": "Running"}
    assert made["capacity"]["tflops"]["value"] == "312"
    assert made["capacity"]["vram"]["value"] == "40Gi"
    assert made["capacity"]["virtual_tflops"] == {
        "value": "468",
        "requestPolicy": {"default": "468", "validRange": {"min": "1"}},
    }


def test_requests_for_physical_capacities_can_only_be_zero():
    policy = device(NodeState("n"))["capacity"]["vram"]["requestPolicy"]
    assert policy == {"default": "0", "validValues": ["0"]}


def test_cards_of_drays_pools_and_of_none_carry_the_owner_taint():
    for state in (NodeState("n"), NodeState("n", pool="p", owner="dray")):
        assert device(state)["taints"] == [
            {"key": "tensor-fusion.ai/owner", "value": "dray", "effect": "NoSchedule"}
        ]
    assert "taints" not in device(NodeState("n", pool="p", owner="kube-scheduler"))


def test_a_sick_card_is_tainted_and_not_running():
    made = device(NodeState("n", owner="kube-scheduler"), health_error="xid 79")
    assert made["taints"] == [
        {"key": "tensor-fusion.ai/unhealthy", "value": "xid-79", "effect": "NoSchedule"}
    ]
    assert made["attributes"]["phase"] != {"string": "Running"}


def test_an_unknown_model_gets_its_fp32_rate_and_says_so():
    gpu = Gpu("GPU-1", "NVIDIA New Thing", 2**30, cores=6912, max_sm_clock_mhz=1410)
    (one,) = slices(GpuSnapshot((gpu,)), NodeState("n"), generation=1)
    made = one["spec"]["devices"][0]
    assert made["capacity"]["tflops"]["value"] == "19"
    assert made["attributes"]["tflops_estimated"] == {"bool": True}
    assert made["attributes"]["model"] == {"string": "New-Thing"}


def test_unhealthy_devices_are_named_in_order():
    unhealthy = [Gpu(f"GPU-{n}", "Tesla T4", 1, health_error="x") for n in "ba"]
    assert unhealthy_devices(GpuSnapshot((*unhealthy, Gpu("GPU-c", "Tesla T4", 1)))) == (
        "gpu-a",
        "gpu-b",
    )


def test_more_tainted_cards_than_a_slice_holds_are_split_in_order():
    snapshot = GpuSnapshot(tuple(Gpu(f"GPU-{n:03}", "Tesla T4", 2**30) for n in range(130)))
    made = slices(snapshot, NodeState("n"), generation=7)
    assert [len(one["spec"]["devices"]) for one in made] == [64, 64, 2]
    names = [one["metadata"]["name"] for one in made]
    assert names == [
        f"tensor-fusion-resource-slice-{part}" for part in ("n", "n.part-1", "n.part-2")
    ]
    untainted = slices(snapshot, NodeState("n", owner="kube-scheduler"), generation=7)
    assert [len(one["spec"]["devices"]) for one in untainted] == [128, 2]


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_shortened_texts_stay_different(one, other):
    assert len(shortened(one, 63)) <= 63
    assert (shortened(one, 63) == shortened(other, 63)) == (one == other)


def test_the_state_is_read_from_the_claim_controllers_fact():
    node = Node("n", "u", pool="p", owner="kube-scheduler", qos="low", vram_ratio="2")
    assert NodeState.of(node) == NodeState("n", "u", "p", "kube-scheduler", "low", "1", "2")


def mig_snapshot():
    """A card with two MIG instances, and one without."""
    card = Gpu("GPU-1", "NVIDIA A100-SXM4-40GB", 40 * 2**30)
    instances = [
        replace(
            card,
            uuid=f"MIG-{number}",
            parent_uuid="GPU-1",
            mig_profile="3g.20gb",
            compute_slices=3,
            memory_bytes=20 * 2**30,
        )
        for number in (1, 2)
    ]
    other = Gpu("GPU-2", "NVIDIA A100-SXM4-40GB", 40 * 2**30)
    return GpuSnapshot((card, *instances, other))


def test_a_card_and_its_mig_instances_exclude_each_other_by_a_counter():
    devices, counters = slices(mig_snapshot(), NodeState("n"), generation=1)
    assert counters["spec"]["sharedCounters"] == [
        {"name": "gpu-1-mig", "counters": {"instances": {"value": "2"}}}
    ]
    uses = {
        device["name"]: [
            counter["value"]
            for use in device.get("consumesCounters", ())
            for counter in use["counters"].values()
        ]
        for device in devices["spec"]["devices"]
    }
    assert uses == {"gpu-1": ["2"], "mig-1": ["1"], "mig-2": ["1"], "gpu-2": []}
    assert devices["spec"]["pool"]["resourceSliceCount"] == 2


def test_kubernetes_1_34_gets_counters_in_the_slice_of_their_devices():
    (only,) = slices(mig_snapshot(), NodeState("n"), generation=1, joint_counters=True)
    assert len(only["spec"]["sharedCounters"]) == 1
    assert len(only["spec"]["devices"]) == 4


def test_a_mig_instance_has_its_part_of_the_card_and_the_node_counts_cards():
    devices = slices(mig_snapshot(), NodeState("n"), generation=1)[0]["spec"]["devices"]
    card, instance = devices[0], devices[1]
    assert instance["capacity"]["tflops"]["value"] == "133"  # 312 * 3 / 7
    assert instance["capacity"]["vram"]["value"] == "20Gi"
    attributes = instance["attributes"]
    assert attributes["type"] == {"string": "mig"}
    assert attributes["profile"] == {"string": "3g.20gb"}
    assert attributes["parentUUID"] == {"string": "GPU-1"}
    assert attributes["model"] == {"string": "A100"}
    for device in (card, instance):
        assert device["attributes"]["node_total_gpus"] == {"int": 2}
        assert device["attributes"]["node_total_tflops"] == {"string": "624"}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("535.104.05", "535.104.5"),
        ("12.4", "12.4.0"),
        ("580", "580.0.0"),
        ("simulated", ""),
        ("", ""),
        ("1.2.3.4", ""),
    ],
)
def test_versions_are_written_as_kubernetes_takes_them(text, version):
    assert semantic_version(text) == version


def test_an_unhealthy_device_has_the_pools_taint_effect():
    for effect in ("NoSchedule", "NoExecute"):
        broken = Gpu("GPU-a", "Tesla T4", 2**30, health_error="xid-79")
        state = NodeState("n", unhealthy_effect=effect)
        (published,) = slices(GpuSnapshot((broken,)), state, generation=1)
        effects = {one["key"]: one["effect"] for one in published["spec"]["devices"][0]["taints"]}
        assert effects == {
            "tensor-fusion.ai/owner": "NoSchedule",
            "tensor-fusion.ai/unhealthy": effect,
        }


def test_a_device_without_its_enforcer_evicts_nobody():
    healthy = Gpu("GPU-a", "Tesla T4", 2**30)
    snapshot = with_problems(GpuSnapshot((healthy,)), {device_name("GPU-a"): "no daemon"})
    (published,) = slices(snapshot, NodeState("n", unhealthy_effect="NoExecute"), generation=1)
    taints = published["spec"]["devices"][0]["taints"]
    assert {one["key"]: one["effect"] for one in taints} == {
        "tensor-fusion.ai/owner": "NoSchedule",
        "tensor-fusion.ai/unhealthy": "NoSchedule",
    }


def test_devices_of_kube_scheduler_are_ordered_by_their_use_as_the_pool_places():
    snapshot = SimulatedGpus("n1", "A100", 3).read()
    first, second, third = (device_name(gpu.uuid) for gpu in snapshot.gpus)
    in_use = {second: 0.25, third: 0.75}

    def order(placement):
        state = NodeState("n1", "u", "p", owner="kube-scheduler", device_order=placement)
        (made,) = slices(snapshot, state, generation=1, in_use=in_use)
        return [device["name"] for device in made["spec"]["devices"]]

    assert order("") == [first, second, third]
    assert order("binpack") == [third, second, first]
    assert order("spread") == [first, second, third]
    in_use[first] = 0.5
    assert order("spread") == [second, first, third]


def test_the_use_of_a_device_is_that_of_its_scarcest_capacity():
    snapshot = SimulatedGpus("n1", "A100", 3).read()
    published = NodeInventory(snapshot, NodeState("n1")).published_gpus
    first, second, third = published

    def claim(uid, device, **more):
        used = PreparedDevice(request="gpu", pool="n1", device=device, cdi_ids=(), **more)
        return PreparedClaim(
            uid=uid, namespace="ns", name=uid, phase="PrepareCompleted", devices=(used,), cdi={}
        )

    quarter = {"virtual_tflops": "78", "virtual_vram": "4Gi"}
    claims = [claim(str(n), first, share_id="s", consumed=quarter) for n in range(2)]
    claims += [claim("whole", second), claim("look", third, admin_access=True)]
    claims += [claim("lost", "gpu-lost", share_id="s", consumed=quarter)]
    expected = {first: 0.5, second: 1.0, third: 0.0, "gpu-lost": 1.0}
    assert devices_in_use(claims, published) == expected
