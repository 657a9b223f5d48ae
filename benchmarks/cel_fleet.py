"""The fleets and selectors of ``benchmarks.cel``: a uuid for every card, some facts missing."""

import random
from collections.abc import Iterator

from dray.api import names
from dray.api.devices import AttributeValue
from dray.api.quantities import Quantity, quantity_of
from dray.cel.view import DeviceView
from dray.user_guide_form.selector import generated_selector

MODELS = {
    "A100": (312, 80), "H100": (989, 80), "H200": (989, 141), "L40S": (362, 48), "T4": (65, 16),
}  # fmt: skip
"""TFLOPS and GiB of a model."""
POOLS = ("production", "research", "staging")
QOS = ("low", "medium", "high", "critical")
REFERENCED = ("model", "pool_name", "qos", "phase", "used_by")
GIB = 2**30
LACKING = 0.1
"""The share of devices that lack one of the attributes that selectors refer to."""


class Cards:
    """Devices as node-agents publish them, by number; the same seed gives the same ones."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)

    def fleet(self, count: int) -> Iterator[tuple[str, DeviceView]]:
        """``count`` cards with their names."""
        for number in range(count):
            yield f"gpu-{number}", self.card(number)

    def card(self, number: int) -> DeviceView:
        """One card: fourteen attributes and four capacities, unique because of its uuid."""
        name = self._random.choice(list(MODELS))
        tflops, gib = MODELS[name]
        attributes: dict[str, AttributeValue] = {
            "uuid": f"GPU-{self._random.getrandbits(128):032x}",
            "model": name,
            "pool_name": self._random.choice(POOLS),
            "pod_namespace": "",
            "phase": self._random.choice(("Running",) * 19 + ("Pending",)),
            "used_by": self._random.choice(("",) * 9 + ("nvidia-device-plugin",)),
            "node_name": f"node-{number // 8}",
            "qos": self._random.choice(QOS),
            "node_total_tflops": str(8 * tflops),
            "node_total_vram": f"{8 * gib}Gi",
            "node_total_gpus": 8,
            "node_managed_gpus": 8,
            "node_virtual_tflops": str(16 * tflops),
            "node_virtual_vram": f"{8 * gib}Gi",
        }
        if self._random.random() < LACKING:
            del attributes[self._random.choice(REFERENCED)]
        return DeviceView(names.DRIVER, attributes, _capacity(tflops, gib * GIB), True)


class Asked:
    """Selectors of annotated pods, each with its own amounts."""

    def __init__(self, seed: int = 2) -> None:
        self._random = random.Random(seed)
        self._given: set[str] = set()

    def selector(self) -> str:
        """A selector that was not returned before."""
        while True:
            text = generated_selector(
                self._random.choice(list(MODELS)),
                self._random.choice(POOLS),
                Quantity(self._random.randrange(1, 9_900) * 10**8),
                self._random.randrange(1, 141 * 1024) * 2**20,
                self._random.choice(QOS),
            )
            if text not in self._given:
                self._given.add(text)
                return text


def _capacity(tflops: int, vram_bytes: int) -> dict[str, Quantity]:
    compute, memory = quantity_of(tflops), Quantity(vram_bytes * 10**9, binary=True)
    return {
        "tflops": compute, "vram": memory, "virtual_tflops": compute, "virtual_vram": memory,
    }  # fmt: skip
