"""Reads facts of earlier releases. They contained some claims and slices twice: in the fields that
those releases had, and complete as ``in_full``."""

from typing import Any

import msgspec
from msgspec.structs import replace

from dray.api.claims import Claim, DeviceRequest
from dray.api.devices import ResourceSlice
from dray.api.nodes import NOWHERE


def complete_claim(claim: Claim) -> Claim:
    """The claim with the requests of ``spec.in_full``."""
    requests = tuple(map(_request, claim.spec.in_full))
    return replace(claim, spec=replace(claim.spec, requests=requests, in_full=()))


def complete_slice(known: ResourceSlice, in_full: dict[str, Any]) -> ResourceSlice:
    """The slice with all fields of ``in_full``."""
    whole = msgspec.convert({**in_full, "uid": known.uid, "node": known.node}, ResourceSlice)
    return replace(whole, nodes=NOWHERE) if whole.node else whole


def _request(found: dict[str, Any]) -> DeviceRequest:
    asked = found["exactly"] or {"name": found["name"], "device_class": ""}
    alternatives = [_stated(one) for one in found["first_available"]]
    return msgspec.convert({**_stated(asked), "first_available": alternatives}, DeviceRequest)


def _stated(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
