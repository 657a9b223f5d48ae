"""Sums of the capacity and use of a pool's devices. Pure.

A pool's status is written every second, while only a few of thousands of cards change: the sums of
one DRA pool are kept until one of its devices or its holders change (``DeviceCache.sums``).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dray.api.claims import AllocatedDevice
from dray.api.device_links import own_attribute
from dray.api.devices import Device, DeviceId
from dray.api.health import is_unhealthy
from dray.api.names import (
    DRIVER,
    TFLOPS,
    VIRTUAL_TFLOPS,
    VIRTUAL_VRAM,
    VRAM,
)
from dray.api.pods import Pod
from dray.api.quantities import InvalidQuantityError, Quantity, parse_quantity, rounded
from dray_claim_controller.cache.cached_objects import CachedPod
from dray_claim_controller.cache.object_cache import ObjectCache

_MODEL = "model"
_MOST_MODELS = 8
_PAIRS = ((TFLOPS, VIRTUAL_TFLOPS), (VRAM, VIRTUAL_VRAM))


@dataclass(frozen=True, slots=True)
class _Amounts:
    """Sums of one physical capacity and its virtual counterpart, in billionths."""

    total: int = 0
    budget: int = 0
    free: int = 0
    """What is left of the budget of healthy cards; below zero if more is taken."""
    partly: int = 0
    """The part of ``free`` on cards that are partly in use."""
    used: int = 0
    """How many healthy cards are in use."""
    full: int = 0
    """How many of them have nothing left."""
    total_binary: bool | None = None
    """Whether the last summand is written with a binary suffix, as the sum then is; None: there is
    none."""
    budget_binary: bool | None = None


@dataclass(frozen=True, slots=True)
class PoolTotals:
    """The cards of some nodes."""

    gpus: int
    unhealthy: int
    models: str
    """Such as ``8 A100, 4 H100``, the most frequent first."""
    tflops: dict[str, str]
    """``total``, ``virtual`` and ``free``, as quantities rounded to hundredths."""
    vram: dict[str, str]
    fragmentation: float = 0.0
    """The share of the free virtual TFLOPS that lies on cards which are partly used, 0 to 1."""
    used: int = 0
    """How many healthy cards have virtual TFLOPS in use."""
    full: int = 0
    """How many of them have nothing left."""


def pool_totals(cache: ObjectCache, nodes: Iterable[str]) -> PoolTotals:
    """The totals of our driver's cards on these nodes."""
    pools = dict.fromkeys(
        (observed.pool, node)
        for node in nodes
        for observed in cache.devices.slices_on(node)
        if observed.driver == DRIVER
    )
    parts = [_sums(cache, pool, node) for pool, node in pools]
    tflops, vram = (
        _as_quantities([part.amounts[index] for part in parts]) for index in range(len(_PAIRS))
    )
    gpus, unhealthy = (sum(part.gpus for part in parts), sum(part.unhealthy for part in parts))
    free = sum(part.amounts[0].free for part in parts)
    partly = sum(part.amounts[0].partly for part in parts)
    return PoolTotals(
        gpus,
        unhealthy,
        _models(parts),
        tflops,
        vram,
        partly / free if free > 0 else 0.0,
        sum(part.amounts[0].used for part in parts),
        sum(part.amounts[0].full for part in parts),
    )


def _models(parts: Iterable["_NodeTotals"]) -> str:
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part.models)
    known = [one for one in sorted(counts.items(), key=lambda one: (-one[1], one[0])) if one[0]]
    named = [f"{count} {model}" for model, count in known[:_MOST_MODELS]]
    more = sum(count for _, count in known[_MOST_MODELS:])
    return ", ".join([*named, f"{more} others"] if more else named)


@dataclass(frozen=True, slots=True)
class _NodeTotals:
    gpus: int
    unhealthy: int
    models: Mapping[str, int]
    """How many cards of each model."""
    amounts: tuple[_Amounts, ...]
    """Per entry of ``_PAIRS``."""


def _sums(cache: ObjectCache, pool: str, node: str) -> _NodeTotals:
    kept: dict[str, _NodeTotals]
    kept = cache.devices.sums.setdefault((DRIVER, pool), {})
    if (known := kept.get(node)) is not None:
        return known
    cards = {
        DeviceId(DRIVER, pool, device.name): device
        for observed in cache.devices.slices_of(DRIVER, pool)
        if observed.node == node
        for device in observed.devices
    }
    found = kept[node] = _NodeTotals(
        len(cards),
        sum(map(is_unhealthy, cards.values())),
        Counter(_model(device) for device in cards.values()),
        tuple(_amounts(cache, cards, *pair) for pair in _PAIRS),
    )
    return found


def _amounts(
    cache: ObjectCache, cards: dict[DeviceId, Device], physical: str, virtual: str
) -> _Amounts:
    totals, budgets, free, partly, used, full = [], [], 0, 0, 0, 0
    for name, device in cards.items():
        total = _capacity(device, physical)
        own = _capacity(device, virtual) or total
        totals += [] if total is None else [total]
        budgets += [] if own is None else [own]
        if is_unhealthy(device):
            continue
        budget = 0 if own is None else own.nano
        shares = list(_shares(cache, name))
        amounts = [_taken(share, virtual, own) for share in shares]
        taken = sum(0 if amount is None else amount.nano for amount in amounts)
        free += budget - taken
        partly += max(0, budget - taken) if taken > 0 else 0
        used += bool(shares)
        full += bool(shares) and taken >= budget
    return _Amounts(
        sum(one.nano for one in totals),
        sum(one.nano for one in budgets),
        free,
        partly,
        used,
        full,
        totals[-1].binary if totals else None,
        budgets[-1].binary if budgets else None,
    )


def _model(device: Device) -> str:
    """Empty if the card does not say."""
    model = own_attribute(DRIVER, device.attributes, _MODEL)
    return model if isinstance(model, str) else ""


def _as_quantities(parts: Sequence[_Amounts]) -> dict[str, str]:
    total = sum(part.total for part in parts)
    budget = sum(part.budget for part in parts)
    free = sum(part.free for part in parts)
    spelt = _last(part.budget_binary for part in parts)
    return {
        "total": rounded(total, binary=_last(part.total_binary for part in parts)),
        "virtual": rounded(budget, binary=spelt),
        "free": rounded(free, binary=spelt),
    }


def _last(flags: Iterable[bool | None]) -> bool:
    """A sum is written as its summands are: 40Gi + 40Gi is 80Gi."""
    found = False
    for flag in flags:
        found = found if flag is None else flag
    return found


def _shares(cache: ObjectCache, name: DeviceId) -> Iterator[AllocatedDevice]:
    for uid in cache.devices.holders.get(name, ()):
        allocation = cache.claims[uid].claim.allocation
        if allocation is not None:
            yield from allocation.shares_of(name)


def _capacity(device: Device, name: str) -> Quantity | None:
    for key, capacity in device.capacity.items():
        if key.rpartition("/")[2] == name:
            return _quantity(capacity.value)
    return None


def _taken(share: AllocatedDevice, virtual: str, whole: Quantity | None) -> Quantity | None:
    for key, amount in share.consumed.items():
        if key.rpartition("/")[2] == virtual:
            return _quantity(amount)
    return whole


def _quantity(text: str) -> Quantity | None:
    try:
        return parse_quantity(text)
    except InvalidQuantityError:
        return None


def waiting_in(cache: ObjectCache, cached: CachedPod) -> str | None:
    """The pool in which a pod waits for devices; None: it does not."""
    pod = cached.pod
    return pod.pool if pod is not None and waits_for_devices(cache, cached, pod) else None


def waits_for_devices(cache: ObjectCache, cached: CachedPod, pod: Pod) -> bool:
    """Whether a pod of ours is going to run and lacks devices."""
    if pod.member is not None and not pod.claims:
        return False
    if cached.node or cached.terminal or pod.deleting:
        return False
    claims = cache.claims_of(pod)
    return not claims or any(held.claim.allocation is None for held in claims)
