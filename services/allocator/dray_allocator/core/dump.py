"""What a state holds about claims and devices, for ``dray doctor --deep``. Pure.

The doctor folds facts and logs by itself and makes the same answers of its own state, so every
replica that folded the same gives the same. A page is made in one go: it is of one moment.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from dray.api.claims import AllocatedDevice
from dray.api.devices import DeviceId
from dray.messages.rpc import Dump, DumpReply, Holding
from dray_allocator.devices.device_requests import oversold
from dray_allocator.state.domain import Domain
from dray_allocator.state.state import AllocatorState

PAGE_CLAIMS = 1000
PAGE_BYTES = 500_000
"""NATS takes 1 MiB a message as it comes."""


@dataclass(frozen=True, slots=True)
class DoubleAllocation:
    """A device of which more is used than it has."""

    device: DeviceId
    claim_uids: tuple[str, ...]
    detail: str


def served_page(state: AllocatorState, asked: Dump) -> DumpReply | None:
    """The answer of the replica that serves the domain; None from every other one."""
    domain = state.domains.get(asked.domain)
    return page(state, domain, asked.after) if domain is not None and domain.serving else None


def page(state: AllocatorState, domain: Domain, after: str = "") -> DumpReply:
    """The holdings that follow ``after``, as many as a message takes.

    Finding the next uids looks at every claim of the domain; a page of 1 000 of 100 000 claims
    takes some 30 ms, so a dump may be asked for while the replica decides.
    """
    uids = heapq.nsmallest(PAGE_CLAIMS + 1, (uid for uid in _uids(state, domain) if uid > after))
    holdings: list[Holding] = []
    page_bytes = 0
    for uid in uids[:PAGE_CLAIMS]:
        holding = holding_of(state, domain, uid)
        page_bytes += len(msgspec.json.encode(holding))
        if holdings and page_bytes > PAGE_BYTES:
            break
        holdings.append(holding)
    return DumpReply(
        domain=domain.name,
        instance=state.rules.writer,
        epoch=domain.epoch,
        facts_sequence=state.facts.position,
        log_sequence=domain.confirmed.sequence,
        holdings=tuple(holdings),
        more=len(holdings) < len(uids),
    )


def holdings_of(state: AllocatorState, domain: Domain) -> dict[str, Holding]:
    """All that the state holds about the claims of a domain, by uid."""
    return {uid: holding_of(state, domain, uid) for uid in sorted(_uids(state, domain))}


def holding_of(state: AllocatorState, domain: Domain, uid: str) -> Holding:
    """What is held about one claim."""
    used = state.device_usage.of_claim(uid)
    reservation = domain.current.claims.get(uid)
    if reservation is None:
        claim = state.facts.claims.get(uid)
        name = (claim.namespace, claim.name) if claim is not None else ("", "")
        return Holding(uid=uid, namespace=name[0], name=name[1], used=_devices(used))
    return Holding(
        uid=uid,
        namespace=reservation.namespace,
        name=reservation.name,
        attempt=reservation.attempt,
        stage=reservation.stage,
        decided_unix_s=reservation.decided_unix_s,
        decided=_devices(reservation.allocation.devices),
        used=_devices(used),
    )


def double_sales(state: AllocatorState) -> Iterator[DoubleAllocation]:
    """Every device of which more is used than it has, by whatever claims."""
    users: dict[DeviceId, dict[str, None]] = {}
    for uid, allocation in state.device_usage.claims():
        for share in allocation.devices:
            if not share.admin_access:
                users.setdefault(share.id, {})[uid] = None
    for device in sorted(users):
        detail = oversold(state.device_usage, state.published.card(device), device)
        if detail:
            yield DoubleAllocation(device, tuple(users[device]), detail)


def _uids(state: AllocatorState, domain: Domain) -> dict[str, None]:
    """The claims that the log speaks of, and those that hold something on the pool's nodes."""
    members = state.facts.members.get(domain.name, {})
    found: dict[str, None] = dict.fromkeys(domain.current.claims)
    for uid, allocation in state.device_usage.claims():
        if any(share.id.pool in members for share in allocation.devices):
            found[uid] = None
    return found


def _devices(devices: tuple[AllocatedDevice, ...]) -> tuple[AllocatedDevice, ...]:
    return tuple(sorted(devices, key=_order))


def _order(device: AllocatedDevice) -> tuple[DeviceId, str, str]:
    return device.id, device.request, device.share_id or ""
