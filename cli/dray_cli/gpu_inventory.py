"""Every GPU of the cluster with its health, fill and holders, from slices and claims."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dray.api.names import DRIVER, PREFIX, VIRTUAL_TFLOPS, VIRTUAL_VRAM
from dray.api.quantities import InvalidQuantityError, parse_quantity, readable
from dray.kube.ports import CLAIMS, SLICES, Kube, Object
from dray_cli.gpu_names import GpuNames, attributes_of, newest_slices

_HEALTH_TAINT = PREFIX + "unhealthy"
_RUNNING = "Running"
_BUDGETS = {VIRTUAL_TFLOPS: "tflops", VIRTUAL_VRAM: "vram"}
"""The consumable capacities and their short names."""


@dataclass(frozen=True, slots=True)
class Budget:
    """One consumable capacity of a GPU, in billionths of a unit."""

    total: int
    used: int
    is_binary: bool

    @property
    def fill(self) -> float:
        """The used part, from 0 to 1; above 1 if the capacity has shrunk."""
        return self.used / self.total if self.total else 0.0

    def __str__(self) -> str:
        used, total = (readable(nano, binary=self.is_binary) for nano in (self.used, self.total))
        return f"{used}/{total}"


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """A claim's share of a GPU."""

    namespace: str
    pod: str
    """The pods that use the claim, separated by commas; empty if there are none."""
    claim: str
    amounts: Mapping[str, str]
    share: float
    """The largest share of a capacity, from 0 to 1; 0 for admin access."""

    def __str__(self) -> str:
        who = f"{self.namespace}/{self.pod or f'(claim {self.claim})'}"
        return f"{who} {percent(self.share)}" if self.share else f"{who} (looks on)"


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU."""

    name: str
    """Short: ``sim-1/gpu-3``."""
    node: str
    device: str
    """Its name in Kubernetes."""
    uuid: str
    model: str
    pool: str
    """The GPUPool that its node belongs to; empty: none."""
    trouble: str
    """Why no pod gets it; empty: it is healthy."""
    used_by: str
    """Who uses it without a claim; empty: nobody."""
    budgets: Mapping[str, Budget]
    """By ``tflops`` and ``vram``."""
    holders: tuple[GpuHolder, ...]

    @property
    def fill(self) -> float:
        """The used part of the most used capacity; 1 for a GPU that is held as a whole."""
        shares = [budget.fill for budget in self.budgets.values()]
        return max([*shares, *(holder.share for holder in self.holders)], default=0.0)

    def as_json(self) -> dict[str, Any]:
        """The GPU as data; shares from 0 to 1, amounts as quantities."""
        return {
            "name": self.name,
            "node": self.node,
            "device": self.device,
            "uuid": self.uuid,
            "model": self.model,
            "pool": self.pool,
            "healthy": not self.trouble,
            "trouble": self.trouble,
            "usedBy": self.used_by,
            "fill": round(self.fill, 4),
            "capacity": {
                name: {
                    "used": readable(budget.used, binary=budget.is_binary),
                    "total": readable(budget.total, binary=budget.is_binary),
                }
                for name, budget in self.budgets.items()
            },
            "holders": [
                {
                    "namespace": holder.namespace,
                    "pod": holder.pod,
                    "claim": holder.claim,
                    "share": round(holder.share, 4),
                    "amounts": dict(holder.amounts),
                }
                for holder in self.holders
            ],
        }


async def read_gpus(kube: Kube, *, pool: str = "", node: str = "") -> list[GpuState]:
    """The GPUs of dray's driver, by node and number; if named, only of one GPUPool or node.

    Raises the errors of ``Kube.list``.
    """
    selector = f"spec.nodeName={node}" if node else ""
    slices = (await kube.list(SLICES, field_selector=selector)).objects
    claims = (await kube.list(CLAIMS)).objects
    return [gpu for gpu in gpus_of(slices, claims) if not pool or gpu.pool == pool]


def gpus_of(slices: Iterable[Object], claims: Iterable[Object]) -> list[GpuState]:
    """The GPUs in ResourceSlices, with the amounts that ResourceClaims use of them."""
    newest = newest_slices(slices)
    names = GpuNames(newest)
    held: dict[tuple[str, str], list[tuple[Object, Object]]] = {}
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            if result.get("driver") == DRIVER:
                held.setdefault((result["pool"], result["device"]), []).append((claim, result))
    found = []
    for one in newest:
        dra_pool = one["spec"]["pool"]["name"]
        node = one["spec"].get("nodeName") or dra_pool
        for device in one["spec"].get("devices") or ():
            name = names.of(dra_pool, device["name"])
            found.append(_gpu(name, node, device, held.get((dra_pool, device["name"]), ())))
    return sorted(found, key=_by_name)


def _by_name(gpu: GpuState) -> tuple[str, int, str]:
    _, _, number = gpu.name.rpartition("/gpu-")
    return gpu.node, int(number) if number.isdecimal() else 0, gpu.name


def _gpu(name: str, node: str, device: Object, held: Iterable[tuple[Object, Object]]) -> GpuState:
    attributes = attributes_of(device)
    totals = {
        shown: (amount["value"], _nano(amount["value"]))
        for capacity, shown in _BUDGETS.items()
        if (amount := (device.get("capacity") or {}).get(capacity))
    }
    holders = tuple(_holder(claim, result, totals) for claim, result in held)
    budgets = {
        shown: Budget(
            total,
            sum(_nano(holder.amounts.get(shown, "0")) for holder in holders),
            text.endswith("i"),
        )
        for shown, (text, total) in totals.items()
    }
    return GpuState(
        name=name,
        node=node,
        device=device["name"],
        uuid=attributes.get("uuid", ""),
        model=attributes.get("model", ""),
        pool=attributes.get("pool_name", ""),
        trouble=_trouble(device, attributes),
        used_by=attributes.get("used_by", ""),
        budgets=budgets,
        holders=tuple(sorted(holders, key=lambda one: (one.namespace, one.pod, one.claim))),
    )


def _trouble(device: Object, attributes: Mapping[str, str]) -> str:
    for taint in device.get("taints") or ():
        if taint.get("key") == _HEALTH_TAINT:
            return str(taint.get("value") or "unhealthy")
    phase = attributes.get("phase", _RUNNING)
    return "" if phase == _RUNNING else f"phase {phase}"


def _holder(claim: Object, result: Object, totals: Mapping[str, tuple[str, int]]) -> GpuHolder:
    consumed = result.get("consumedCapacity") or {}
    amounts = {shown: consumed[name] for name, shown in _BUDGETS.items() if name in consumed}
    shares = [
        _nano(text) / totals[shown][1]
        for shown, text in amounts.items()
        if shown in totals and totals[shown][1]
    ]
    share = 0.0 if result.get("adminAccess") else max(shares, default=1.0)
    metadata = claim["metadata"]
    status = claim.get("status") or {}
    users = [one["name"] for one in status.get("reservedFor") or () if "name" in one]
    owners = [
        one["name"]
        for one in metadata.get("ownerReferences") or ()
        if one.get("kind") == "Pod" and not users
    ]
    pods = ",".join(users or owners)
    return GpuHolder(metadata.get("namespace", ""), pods, metadata["name"], amounts, share)


def _nano(text: str) -> int:
    try:
        return parse_quantity(text).nano
    except InvalidQuantityError:
        return 0


def percent(fraction: float) -> str:
    """Such as ``40%``; a small share is never shown as 0%, and only a whole one as 100%."""
    if 0 < fraction < 0.01:
        return "<1%"
    if 0.99 < fraction < 1:
        return "99%"
    return f"{round(fraction * 100)}%"
