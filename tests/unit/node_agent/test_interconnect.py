"""How GPUs are joined, as they are published."""

import pytest

from dray.api.names import NUMA_NODE, NVLINK_DOMAIN, PCI_BUS_ID, PCIE_ROOT
from dray_node_agent.decisions.gpus import Gpu, GpuSnapshot
from dray_node_agent.decisions.inventory import NodeState, slices
from dray_node_agent.gpus.interconnect import (
    SWITCH,
    numa_node,
    nvlink_domains,
    pci_address,
    pcie_root,
)
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus


@pytest.mark.parametrize(
    ("links", "domains"),
    [
        ({"a": [], "b": []}, {}),
        ({"a": ["b"], "b": ["a"], "c": []}, {"a": "a", "b": "a"}),
        ({"a": ["b"], "b": ["a", "c"], "c": ["b"]}, {"a": "a", "b": "a", "c": "a"}),
        (
            {"d": ["c"], "c": ["d"], "b": ["a"], "a": ["b"]},
            {one: min(one, other) for one, other in ("dc", "cd", "ba", "ab")},
        ),
        ({"a": [SWITCH], "b": [SWITCH], "c": []}, {"a": "a", "b": "a"}),
        ({"a": [SWITCH], "b": ["cpu"]}, {}),
        ({"a": ["b"], "b": []}, {"a": "a", "b": "a"}),
    ],
)
def test_nvlink_joins_directly_over_cards_and_over_switches(links, domains):
    assert nvlink_domains(links) == domains


@pytest.mark.parametrize(
    ("bus_id", "address"),
    [("00000000:3B:00.0", "0000:3b:00.0"), ("00010000:01:00.0", "10000:01:00.0"), ("", "")],
)
def test_nvml_s_bus_ids_are_written_as_linux_does(bus_id, address):
    assert pci_address(bus_id) == address


def test_root_and_numa_node_are_read_from_sysfs(tmp_path):
    device = tmp_path / "devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"
    device.mkdir(parents=True)
    by_address = tmp_path / "bus/pci/devices"
    by_address.mkdir(parents=True)
    (by_address / "0000:3b:00.0").symlink_to(device)
    assert pcie_root("0000:3b:00.0", by_address) == "pci0000:3a"
    for text, number in (("1\n", 1), ("0\n", 0), ("-1\n", None), ("odd", None)):
        (device / "numa_node").write_text(text)
        assert numa_node("0000:3b:00.0", by_address) == number
    for absent in ("0000:99:00.0", ""):
        assert pcie_root(absent, by_address) == ""
        assert numa_node(absent, by_address) is None


def joints(gpu):
    (published,) = slices(GpuSnapshot((gpu,)), NodeState("n"), generation=1)
    attributes = published["spec"]["devices"][0]["attributes"]
    names = (NVLINK_DOMAIN, NUMA_NODE, PCIE_ROOT, PCI_BUS_ID)
    return [attributes.get(name) for name in names]


def test_a_slice_says_what_is_known_of_a_card_s_joints():
    gpu = Gpu("GPU-1", "NVIDIA A100-SXM4-80GB", 2**36)
    assert joints(gpu) == [None] * 4
    simulated = SimulatedGpus("n", "A100", 4).read().gpus[2]
    assert joints(simulated) == [
        {"string": "0000:01:00.0"},
        {"int": 1},
        {"string": "pci0000:80"},
        {"string": "0000:03:00.0"},
    ]


@pytest.mark.parametrize("count", [1, 2, 5, 6, 8])
def test_simulated_cards_are_connected_as_on_a_server_of_their_model(count):
    gpus = SimulatedGpus("n", "H100", count).read().gpus
    assert len({gpu.nvlink_domain for gpu in gpus}) == 1
    assert bool(gpus[0].nvlink_domain) == (count > 1)
    assert {gpu.nvlink_domain for gpu in SimulatedGpus("n", "L40S", count).read().gpus} == {""}
    roots: dict[str, list[int | None]] = {}
    for gpu in gpus:
        roots.setdefault(gpu.pcie_root, []).append(gpu.numa_node)
    assert all(len(numa) <= 2 and len({*numa}) == 1 for numa in roots.values())
    halves = [gpu.numa_node for gpu in gpus]
    assert halves == sorted(halves)
    assert 0 <= halves.count(0) - halves.count(1) <= 1
