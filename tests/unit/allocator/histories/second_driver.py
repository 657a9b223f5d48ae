"""A cluster with a second driver's devices, which only the search decides about."""

import dataclasses
from random import Random
from typing import Any

from msgspec.structs import replace
from tests.unit.allocator.histories.cluster import Cluster
from tests.unit.allocator.histories.truth import NODES, SICK

from dray.api import names
from dray.api.claims import Claim
from dray.api.devices import DeviceClass
from dray.api.quantities import parse_quantity
from dray.kube.convert import claim_from, slice_from
from dray.messages.facts import DeviceClassObserved, SliceObserved

NVIDIA = "gpu.nvidia.com"


class SecondDriverCluster(Cluster):
    """Its nodes have devices of another driver, too.

    One that is given as a whole, one whose memory is shared out, and a card as a whole and in
    halves, which draw on the same counter; pods may want something of both drivers.
    """

    OPTIONS = dataclasses.replace(Cluster.OPTIONS, drivers=(names.DRIVER, NVIDIA))

    def configure(self) -> None:
        """See ``Cluster.configure``."""
        kind = DeviceClass(NVIDIA, (f'device.driver == "{NVIDIA}"',))
        self.see(DeviceClassObserved(revision=1, device_class=kind))
        super().configure()

    def publish_devices(self, node: str, flaw: str = "") -> None:
        """See ``Cluster.publish_devices``; both drivers' devices have the flaw."""
        super().publish_devices(node, flaw)
        devices = [] if flaw == "without" else [*THEIRS]
        if flaw == "tainted":
            sick = {"key": SICK.key, "effect": SICK.effect}
            devices = [{**one, "taints": [sick]} for one in devices]
        self._publish(f"{node}-sets", node, 2, {"sharedCounters": COUNTERS})
        count = 3 if flaw == "partial" else 2
        self._publish(f"{node}-devices", node, count, {"devices": devices}, flaw == "deleted")

    def _publish(
        self, name: str, node: str, count: int, says: dict[str, Any], deleted: bool = False
    ) -> None:
        pool = {"name": node, "generation": self.generation, "resourceSliceCount": count}
        obj = {
            "metadata": {"name": name, "uid": name},
            "spec": {"driver": NVIDIA, "nodeName": node, "pool": pool, **says},
        }
        known = slice_from(obj)
        self.see(SliceObserved(revision=self.next(), slice=known, deleted=deleted))

    def a_claim(self, uid: str, pool: str, random: Random) -> Claim:
        """See ``Cluster.a_claim``."""
        plain = super().a_claim(uid, pool, random)
        wish = random.choice(list(WISHES))
        if wish == "share":
            return plain
        metadata = {"name": plain.name, "namespace": plain.namespace, "uid": plain.uid}
        obj = {"metadata": metadata, "spec": {"devices": {"requests": WISHES[wish]}}}
        return replace(plain, spec=claim_from(obj).spec)

    def no_device_is_oversold(self) -> None:
        """See ``Cluster.no_device_is_oversold``; nor more than one has a device that is not
        shared, nor is more drawn on counters than there is."""
        super().no_device_is_oversold()
        drawn = dict.fromkeys(NODES, 0)
        for device, shares in self.shares().items():
            if device.driver != NVIDIA:
                continue
            drawn[device.pool] += DRAWS.get(device.device, 0)
            if device.device == "shared":
                taken = sum(parse_quantity(one.consumed["memory"]).nano for one in shares)
                assert taken <= parse_quantity("40Gi").nano, device
            else:
                assert len(shares) == 1, (device, shares)
        assert max(drawn.values()) <= 2, drawn


def _device(name: str, halves: int = 0, **says: Any) -> dict[str, Any]:
    memory = {"memory": {"value": f"{40 * halves}Gi"}}
    uses = {"consumesCounters": [{"counterSet": "card", "counters": memory}]} if halves else {}
    return {
        "name": name,
        "attributes": {"kind": {"string": name.partition("-")[0]}},
        **uses,
        **says,
    }


DRAWS = {"whole": 2, "half-0": 1, "half-1": 1}
"""Of the counter of their card, in halves."""
COUNTERS = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
THEIRS = (
    _device("plain"),
    _device("shared", capacity={"memory": {"value": "40Gi"}}, allowMultipleAllocations=True),
    *(_device(name, halves) for name, halves in DRAWS.items()),
)


def _ask(name: str, kind: str = "", of: str = NVIDIA, **exactly: Any) -> dict[str, Any]:
    expression = f'device.attributes["{NVIDIA}"].kind == "{kind}"'
    selectors = {"selectors": [{"cel": {"expression": expression}}]} if kind else {}
    return {"name": name, "exactly": {"deviceClassName": of, **selectors, **exactly}}


def _first_of(*asks: dict[str, Any]) -> dict[str, Any]:
    flat = [{"name": one["name"], **one["exactly"]} for one in asks]
    return {"name": "first", "firstAvailable": flat}


_MEMORY: dict[str, Any] = {"capacity": {"requests": {"memory": "15Gi"}}}
_SHARE: dict[str, Any] = {
    "capacity": {"requests": {"virtual_tflops": "100", "virtual_vram": "16Gi"}}
}
WISHES: dict[str, list[dict[str, Any]]] = {
    "share": [],
    "plain": [_ask("a", "plain")],
    "any": [_ask("a")],
    "memory": [_ask("a", "shared", **_MEMORY)],
    "half": [_ask("a", "half")],
    "whole": [_ask("a", "whole")],
    "whole or half": [_first_of(_ask("a", "whole"), _ask("b", "half"))],
    "both halves": [_ask("a", "half", count=2)],
    "all": [_ask("a", "half", allocationMode="All")],
    "look": [_ask("a", allocationMode="All", adminAccess=True)],
    "both drivers": [_ask("a", of=names.DEVICE_CLASS, **_SHARE), _ask("b", "half")],
}
