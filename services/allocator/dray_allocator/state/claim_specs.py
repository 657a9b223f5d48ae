"""Interned specs of claims: equal specs share one object, which saves cache misses.

A thousand pods of one template have a thousand claims with equal specs.
"""

import msgspec

from dray.api.claims import Claim, ClaimSpec, DeviceRequest
from dray_allocator.devices.percentages import percents, shares_of

_KEPT = 1024
Part = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""Of a request: selectors and capacity."""
_Key = tuple[tuple[Part, ...], bytes]


class ClaimSpecInterner:
    """A bounded set of specs with their signatures."""

    def __init__(self) -> None:
        self._kept: dict[_Key, tuple[ClaimSpec, bytes]] = {}
        """By the part that differs most. Equality alone is not enough: 1 equals true."""

    def same(self, claim: Claim) -> tuple[ClaimSpec, bytes]:
        """The first spec that equals the claim's, and its signature."""
        key = tuple([_part(request) for request in claim.spec.requests]), unsigned_part(claim.spec)
        kept = self._kept.get(key)
        if kept is not None and kept[0] == claim.spec:
            return kept
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        made = self._kept[key] = claim.spec, signature(claim)
        return made


def signature(claim: Claim) -> bytes:
    """Equal for claims with equal requests."""
    shares = [percents(claim, request.name) for request in claim.spec.requests]
    asked: tuple[object, ...] = (claim.spec.requests, claim.spec.constraints, shares)
    if any(request.first_available for request in claim.spec.requests):
        asked = (*asked, tuple(shares_of(claim)))
    return msgspec.json.encode(asked, order="deterministic")


def unsigned_part(spec: ClaimSpec) -> bytes:
    """The part of a spec in which claims of equal signatures may differ."""
    if not spec.config and not spec.unsupported:
        return b""
    return msgspec.json.encode((spec.config, spec.unsupported), order="deterministic")


def _part(request: DeviceRequest) -> Part:
    return request.selectors, tuple(request.capacity.items())
