"""Compute of GPU models, which NVML does not report.

From the vendors' data sheets: dense FP16/BF16 tensor TFLOPS (no sparsity), rounded down. A GPU of
an unknown model gets its FP32 rate, cores × 2 × clock, and is marked as estimated.
"""

import re
from dataclasses import dataclass

from dray_node_agent.decisions.gpus import Gpu

_TABLE: tuple[tuple[str, str, int], ...] = (
    # Pattern of the product name, short name as users write it, TFLOPS. First match wins.
    (r"GB300|\bB300", "B300", 2250),
    (r"GB200", "GB200", 2500),
    (r"\bB200", "B200", 2250),
    (r"\bB100", "B100", 1750),
    (r"GH200", "GH200", 989),
    (r"\bH200 NVL", "H200", 835),
    (r"\bH200", "H200", 989),
    (r"\bH800 PCIe", "H800", 756),
    (r"\bH800", "H800", 989),
    (r"\bH100 PCIe", "H100", 756),
    (r"\bH100 NVL", "H100", 835),
    (r"\bH100", "H100", 989),
    (r"\bH20\b", "H20", 148),
    (r"\bA100", "A100", 312),
    (r"\bA800", "A800", 312),
    (r"\bA40\b", "A40", 149),
    (r"\bA30\b", "A30", 165),
    (r"\bA10G\b", "A10G", 70),
    (r"\bA10\b", "A10", 125),
    (r"\bL40S", "L40S", 362),
    (r"\bL40\b", "L40", 181),
    (r"\bL20\b", "L20", 119),
    (r"\bL4\b", "L4", 121),
    (r"\bV100-PCIE", "V100", 112),
    (r"\bV100", "V100", 125),
    (r"\bT4\b", "T4", 65),
    (r"RTX 6000 Ada", "RTX6000-Ada", 364),
    (r"RTX A6000", "RTXA6000", 154),
    (r"RTX A5000", "RTXA5000", 111),
    (r"RTX 5090", "RTX5090", 209),
    (r"RTX 4090", "RTX4090", 165),
    (r"RTX 3090", "RTX3090", 71),
)
_KNOWN = tuple((re.compile(pattern), name, tflops) for pattern, name, tflops in _TABLE)
_LONGEST = 64


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A GPU model's short name and compute."""

    name: str
    tflops: int
    """Whole TFLOPS, at least 1."""
    estimated: bool = False
    """From the FP32 formula: the model is not in the table."""


def model_of(gpu: Gpu) -> GpuModel:
    """The model of ``GPU`` by its product name."""
    for pattern, name, tflops in _KNOWN:
        if pattern.search(gpu.product):
            return GpuModel(name, tflops)
    fp32 = gpu.cores * 2 * gpu.max_sm_clock_mhz // 1_000_000
    name = re.sub(r"^(NVIDIA|Tesla)\s+(GeForce\s+)?", "", gpu.product)
    return GpuModel(name.replace(" ", "-")[:_LONGEST] or "unknown", max(fp32, 1), estimated=True)
