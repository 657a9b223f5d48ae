"""Pages of a replica's state for ``dray doctor --deep``. Pure.

The doctor folds facts and logs itself and compares its state with these pages. A page shows one
moment: it is made in one step.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from dray.api.claims import AllocatedDevice
from dray.api.devices import DeviceId
from dray.messages.rpc import Dump, DumpReply, Holding
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState

PAGE_CLAIMS = 1000
PAGE_BYTES = 500_000
"""Below 1 MiB, the default limit of a NATS message."""


@dataclass(frozen=True, slots=True)
class DoubleAllocation:
    """A device that is allocated beyond its capacity."""

    device: DeviceId
    claim_uids: tuple[str, ...]
    detail: str


def _served_page(state: AllocatorState, asked: Dump) -> DumpReply | None:
    """The page, if this replica serves the domain; else None."""
    domain = state.domains.get(asked.domain)
    return page(state, domain, asked.after) if domain is not None and domain.serving else None


def answer_to(state: AllocatorState, request: bytes) -> bytes | None:
    """The encoded DumpReply to an encoded Dump; None if another replica serves the domain."""
    try:
        asked = msgspec.json.decode(request, type=Dump)
    except msgspec.MsgspecError as error:
        reply = DumpReply(domain="", error=f"the request can't be read: {error}")
        return msgspec.json.encode(reply)
    answer = _served_page(state, asked)
    return msgspec.json.encode(answer) if answer is not None else None


def page(state: AllocatorState, domain: SchedulingDomain, after: str = "") -> DumpReply:
    """The holdings after the uid ``after``, as many as fit into a message.

    Finding the next uids reads every claim of the domain; a page of 1 000 of 100 000 claims takes
    about 30 ms, and the replica can make decisions between two pages.
    """
    uids = heapq.nsmallest(PAGE_CLAIMS + 1, (uid for uid in _uids(state, domain) if uid > after))
    holdings: list[Holding] = []
    page_bytes = 0
    for uid in uids[:PAGE_CLAIMS]:
        holding = _holding_of(state, domain, uid)
        page_bytes += len(msgspec.json.encode(holding))
        if holdings and page_bytes > PAGE_BYTES:
            break
        holdings.append(holding)
    return DumpReply(
        domain=domain.name,
        instance=state.options.writer,
        epoch=domain.epoch,
        facts_sequence=state.facts.position,
        log_sequence=domain.confirmed.sequence,
        holdings=tuple(holdings),
        more=len(holdings) < len(uids),
    )


def holdings_of(state: AllocatorState, domain: SchedulingDomain) -> dict[str, Holding]:
    """The holdings of all claims of a domain, by uid."""
    return {uid: _holding_of(state, domain, uid) for uid in sorted(_uids(state, domain))}


def _holding_of(state: AllocatorState, domain: SchedulingDomain, uid: str) -> Holding:
    """The holding of one claim: what it uses, and its latest attempt."""
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


def double_allocations(state: AllocatorState) -> Iterator[DoubleAllocation]:
    """Every device that is allocated beyond its capacity, with the claims that use it."""
    users: dict[DeviceId, dict[str, None]] = {}
    for uid, allocation in state.device_usage.claims():
        for share in allocation.devices:
            if not share.admin_access:
                users.setdefault(share.id, {})[uid] = None
    for device in sorted(users):
        detail = state.device_usage.double_allocation(device, state.published.cards.get(device))
        if detail:
            yield DoubleAllocation(device, tuple(users[device]), detail)


def _uids(state: AllocatorState, domain: SchedulingDomain) -> dict[str, None]:
    """The claims in the log, and those that hold devices on the pool's nodes."""
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
