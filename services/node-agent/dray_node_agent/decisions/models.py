"""Short names and compute of GPU models, from the table ``gpu_models.toml``.

A GPU of an unknown model gets its FP32 rate, cores × 2 × clock, and is marked as estimated.
"""

import re
import tomllib
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Final

from dray_node_agent.decisions.gpus import Gpu

_LONGEST: Final = 64


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A GPU model's short name and compute."""

    name: str
    tflops: int
    """Whole TFLOPS, at least 1."""
    estimated: bool = False
    """From the FP32 formula: the model is not in the table."""
    mig_slices: int = 7
    """Compute slices of a card that can be split."""


def _read_table() -> tuple[tuple[re.Pattern[str], GpuModel], ...]:
    text = resources.files("dray_node_agent.decisions").joinpath("gpu_models.toml").read_text()
    return tuple(
        (
            re.compile(row["product"]),
            GpuModel(row["name"], row["tflops"], mig_slices=row.get("mig_slices", 7)),
        )
        for row in tomllib.loads(text)["model"]
    )


_TABLE: Final = _read_table()


def model_of(gpu: Gpu) -> GpuModel:
    """The model of a GPU by its product name. A MIG instance has the part of the card's compute
    that its slices have."""
    card = _known(gpu.product) or _estimated(gpu)
    if not gpu.compute_slices:
        return card
    tflops = max(card.tflops * gpu.compute_slices // card.mig_slices, 1)
    return replace(card, tflops=tflops)


@lru_cache(maxsize=256)
def _known(product: str) -> GpuModel | None:
    return next((model for pattern, model in _TABLE if pattern.search(product)), None)


def _estimated(gpu: Gpu) -> GpuModel:
    fp32 = gpu.cores * 2 * gpu.max_sm_clock_mhz // 1_000_000
    name = re.sub(r"^(NVIDIA|Tesla)\s+(GeForce\s+)?", "", gpu.product)
    return GpuModel(name.replace(" ", "-")[:_LONGEST] or "unknown", max(fp32, 1), estimated=True)
