"""Kubernetes objects for the search; only ``handle`` decides about them."""

from typing import Any

import pytest

from dray.api import names
from dray.api.devices import DeviceClass
from dray.kube.convert import claim_from, slice_from
from dray.messages.facts import ClaimObserved, DeviceClassObserved, PodObserved, SliceObserved
from dray_allocator.values.options import AllocatorOptions

Object = dict[str, Any]
NVIDIA = "gpu.nvidia.com"


class KubernetesWorld:
    """A world whose slices and claims come in as Kubernetes has them."""

    def __init__(self, world: Any) -> None:
        self.world = world
        for name in (NVIDIA, "mig.nvidia.com"):
            kind = DeviceClass(name, (f'device.driver == "{NVIDIA}"',))
            self.world.see(DeviceClassObserved(revision=1, device_class=kind))

    @staticmethod
    def request(name: str = "gpu", of: str = names.DEVICE_CLASS, **exactly: Any) -> Object:
        """A request for one device of a class."""
        return {"name": name, "exactly": {"deviceClassName": of, **exactly}}

    @staticmethod
    def first_of(*alternatives: Object, name: str = "gpu") -> Object:
        """A request with alternatives."""
        flat = [{"name": one["name"], **one["exactly"]} for one in alternatives]
        return {"name": name, "firstAvailable": flat}

    @staticmethod
    def device(name: str, model: str = "A100", **fields: Any) -> Object:
        """A device that is given as a whole."""
        return {"name": name, "attributes": {"model": {"string": model}}, **fields}

    def device_of(self, name: str, kind: str) -> Object:
        """A device of a kind: plain, shared, of another model, drawing on a counter, or without
        attributes."""
        memory = {"memory": {"value": "40Gi"}}
        uses = [{"counterSet": "card", "counters": memory}]
        return {
            "plain": self.device(name, capacity=memory),
            "shared": self.device(name, capacity=memory, allowMultipleAllocations=True),
            "other": self.device(name, "B"),
            "counting": self.device(name, capacity=memory, consumesCounters=uses),
            "nameless": {"name": name},
        }[kind]

    def node(self, name: str, **changes: Any) -> None:
        """A roomy node of the pool."""
        self.world.node(self.world.a_node(name, **changes))

    def publish(
        self, name: str, *devices: Object, driver: str = names.DRIVER, pool: str = "", **spec: Any
    ) -> None:
        """A slice of the node of that name, unless the specification says otherwise."""
        where = {} if {"allNodes", "nodeSelector"} & spec.keys() else {"nodeName": name}
        count, generation = spec.pop("count", 1), spec.pop("generation", 1)
        obj = {
            "metadata": {"name": f"{driver}-{name}", "uid": f"{driver}-{name}"},
            "spec": {
                "driver": driver,
                "pool": {
                    "name": pool or name,
                    "generation": generation,
                    "resourceSliceCount": count,
                },
                "devices": list(devices),
                **where,
                **spec,
            },
        }
        known = slice_from(obj)
        fact = SliceObserved(revision=self.world.next(), slice=known)
        self.world.see(fact)

    def submit(self, name: str, *requests: Object, pod: Any = None, **devices: Any) -> None:
        """A pod and its claim."""
        self.claim(name, {"spec": {"devices": {"requests": list(requests), **devices}}})
        one = pod or self.world.a_pod(name)
        self.world.see(PodObserved(revision=self.world.next(), pod=one))

    def claim(self, name: str, obj: Object) -> None:
        """A claim as Kubernetes has it."""
        metadata = {
            "name": f"{name}-gpu",
            "namespace": "ns",
            "uid": f"claim-{name}",
            "resourceVersion": str(self.world.next()),
            "labels": {names.POOL_LABEL: "pool"},
        }
        claim = claim_from({"metadata": metadata, **obj})
        self.world.see(ClaimObserved(revision=self.world.next(), claim=claim))

    def got(self, name: str) -> list[str]:
        """``request=device`` of everything that the pod's claims got."""
        return [f"{one.request}={one.id.device}" for one in self.allocation(name).devices]

    def allocation(self, name: str) -> Any:
        """What the pod's claim got."""
        return self.world.decisions()[name].claims[0].allocation

    def waits(self, name: str) -> bool:
        """Whether nothing was decided for the pod."""
        return name not in self.world.decisions()

    def reasons_of(self, name: str) -> str:
        """Why it waits."""
        assert self.waits(name)
        reasons = self.world.waits(name)[-1].reasons
        assert reasons, "it waits without a word"
        return "\n".join(map(str, reasons))


@pytest.fixture
def kube(make_world: Any) -> KubernetesWorld:
    """A world that gives out devices of NVIDIA's driver, too."""
    return KubernetesWorld(
        make_world(AllocatorOptions(writer="one", drivers=(names.DRIVER, NVIDIA))).open()
    )


@pytest.fixture
def partitions() -> list[Object]:
    """A card as a whole and its two halves, which draw on the same memory."""

    def uses(amount: str) -> list[Object]:
        return [{"counterSet": "card", "counters": {"memory": {"value": amount}}}]

    return [
        KubernetesWorld.device("whole", "H100", consumesCounters=uses("80Gi")),
        KubernetesWorld.device("half-0", "MIG", consumesCounters=uses("40Gi")),
        KubernetesWorld.device("half-1", "MIG", consumesCounters=uses("40Gi")),
    ]


@pytest.fixture
def counters() -> list[Object]:
    """What a card of 80Gi has."""
    return [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
