"""Speeds of known models by NVML's product names."""

import pytest

from dray_node_agent.decisions.gpus import Gpu
from dray_node_agent.decisions.models import GpuModel, model_of
from dray_node_agent.gpus.simulated_gpus import MODELS, SimulatedGpus


@pytest.mark.parametrize(
    ("product", "name", "tflops"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100", 312),
        ("NVIDIA A100 80GB PCIe", "A100", 312),
        ("NVIDIA H100 80GB HBM3", "H100", 989),
        ("NVIDIA H100 PCIe", "H100", 756),
        ("NVIDIA H200", "H200", 989),
        ("NVIDIA GH200 480GB", "GH200", 989),
        ("NVIDIA H20", "H20", 148),
        ("NVIDIA B200", "B200", 2250),
        ("NVIDIA GB200", "GB200", 2500),
        ("Tesla V100-SXM2-16GB", "V100", 125),
        ("NVIDIA L40S", "L40S", 362),
        ("NVIDIA L40", "L40", 181),
        ("NVIDIA L4", "L4", 121),
        ("NVIDIA A10G", "A10G", 70),
        ("NVIDIA A10", "A10", 125),
        ("Tesla T4", "T4", 65),
        ("NVIDIA GeForce RTX 4090", "RTX4090", 165),
    ],
)
def test_a_known_product_has_its_short_name_and_data_sheet_speed(product, name, tflops):
    assert model_of(Gpu("GPU-1", product, 1)) == GpuModel(name, tflops)


def test_an_unknown_product_is_estimated_and_never_zero():
    assert model_of(Gpu("GPU-1", "", 1)) == GpuModel("unknown", 1, estimated=True)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_that_can_be_simulated_is_known(model):
    (gpu,) = SimulatedGpus("n", model, 1).read().gpus
    assert model_of(gpu).name == model
    assert not model_of(gpu).estimated
