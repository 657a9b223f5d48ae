"""Validation of a ResourceClaim's status: allocation, reservedFor, and devices' statuses.

Source of the rules: `pkg/apis/resource/validation/validation.go` of Kubernetes 1.36.
"""

import ipaddress

from . import claimspec
from .conditions import conditions_errors
from .devicenames import driver_errors, label_errors, pool_errors, uid_errors
from .deviceparts import binding_errors, raw_errors
from .fieldlists import list_errors, set_errors
from .nodeselectors import node_selector_errors
from .rules import immutable
from .status import (
    FieldError,
    Object,
    forbidden_field,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)

_MAX_RESERVED_FOR = 256
_MAX_RESULTS = 32
_MAX_CONDITIONS = 8
_MAX_ADDRESSES = 16
_MAX_INTERFACE_BYTES = 256
_MAX_HARDWARE_BYTES = 128
_ANY_NUMBER = 1 << 30


def status_errors(
    status: Object, before: Object, names: set[str], *, deleting: bool
) -> list[FieldError]:
    """Findings about a new status of a claim; `names` are those of its requests."""
    found = _reserved_for(status, before, deleting)
    found += set_errors(
        status.get("devices") or [],
        _ANY_NUMBER,
        "status.devices",
        lambda item, where: _device_status(item, where, _allocated(status)),
        _device_key,
        _go_struct,
    )
    allocation = status.get("allocation")
    if allocation is None:
        return found
    if before.get("allocation") is not None:
        return found + immutable("status.allocation", allocation, before["allocation"])
    return found + _allocation(allocation, names)


def drop_deallocated(status: Object, before: Object) -> None:
    """Remove the statuses of devices that this write deallocates."""
    gone = [key for key in _allocated(before) if key not in _allocated(status)]
    kept = [device for device in status.get("devices") or [] if _device_key(device) not in gone]
    if "devices" in status:
        status["devices"] = kept
        if not kept:
            del status["devices"]


def _reserved_for(status: Object, before: Object, deleting: bool) -> list[FieldError]:
    field = "status.reservedFor"
    users = status.get("reservedFor") or []
    found = set_errors(users, _MAX_RESERVED_FOR, field, _user, lambda user: user.get("uid", ""))
    if users and status.get("allocation") is None:
        text = "may not be specified when `allocated` is not set"
        found.append(forbidden_field(field, text))
    elif deleting and any(user not in (before.get("reservedFor") or []) for user in users):
        text = (
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` "
            "are set"
        )
        found.append(forbidden_field(field, text))
    return found


def _user(user: Object, field: str) -> list[FieldError]:
    return [required(f"{field}.{key}") for key in ("resource", "name", "uid") if not user.get(key)]


def _device_key(item: Object) -> tuple[str, ...]:
    return tuple(item.get(key, "") for key in ("driver", "pool", "device", "shareID"))


def _go_struct(item: Object) -> Object:
    """A device as Go prints its key."""
    return dict(zip(("Driver", "Pool", "Device", "ShareID"), _device_key(item), strict=True))


def _allocated(status: Object) -> list[tuple[str, ...]]:
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
    return [_device_key(result) for result in results]


def _device_status(
    device: Object, field: str, allocated: list[tuple[str, ...]]
) -> list[FieldError]:
    found = _device_names(device, field)
    if _device_key(device) not in allocated:
        found.append(invalid(field, _go_struct(device), "must be an allocated device in the claim"))
    conditions = device.get("conditions") or []
    where = f"{field}.conditions"
    if len(conditions) > _MAX_CONDITIONS:
        found.append(too_many(where, len(conditions), _MAX_CONDITIONS))
    found += conditions_errors(conditions, where)
    if device.get("data") is not None:
        found += raw_errors(device["data"], f"{field}.data")
    return found + _network(device.get("networkData") or {}, f"{field}.networkData")


def _device_names(item: Object, field: str) -> list[FieldError]:
    found = driver_errors(item.get("driver", ""), f"{field}.driver")
    found += pool_errors(item.get("pool", ""), f"{field}.pool")
    found += label_errors(item.get("device", ""), f"{field}.device")
    share = item.get("shareID")
    return found if share is None else found + uid_errors(share, f"{field}.shareID")


def _network(data: Object, field: str) -> list[FieldError]:
    limits = (("interfaceName", _MAX_INTERFACE_BYTES), ("hardwareAddress", _MAX_HARDWARE_BYTES))
    found = [
        too_long(f"{field}.{name}", limit)
        for name, limit in limits
        if len(data.get(name, "").encode()) > limit
    ]
    return found + set_errors(data.get("ips") or [], _MAX_ADDRESSES, f"{field}.ips", _address, str)


def _address(value: str, field: str) -> list[FieldError]:
    try:
        canonical = str(ipaddress.ip_interface(value)) if "/" in value else ""
    except ValueError:
        canonical = ""
    if not canonical:
        text = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        return [invalid(field, value, text)]
    if canonical != value:
        return [invalid(field, value, f'must be in canonical form ("{canonical}")')]
    return []


def _allocation(allocation: Object, names: set[str]) -> list[FieldError]:
    devices, field = allocation.get("devices") or {}, "status.allocation.devices"
    found = list_errors(
        devices.get("results") or [],
        _MAX_RESULTS,
        f"{field}.results",
        lambda item, where: _result(item, where, names),
    )
    found += list_errors(
        devices.get("config") or [],
        2 * claimspec.MAX_CONFIGS,
        f"{field}.config",
        lambda item, where: _config(item, where, names),
    )
    selector = allocation.get("nodeSelector")
    if selector is None:
        return found
    return found + node_selector_errors(selector, "status.allocation.nodeSelector")


def _result(result: Object, field: str, names: set[str]) -> list[FieldError]:
    found = claimspec.reference(result.get("request", ""), f"{field}.request", names)
    return found + _device_names(result, field) + binding_errors(result, field)


def _config(item: Object, field: str, names: set[str]) -> list[FieldError]:
    source, found = item.get("source", ""), []
    if not source:
        found.append(required(f"{field}.source"))
    elif source not in ("FromClaim", "FromClass"):
        found.append(not_supported(f"{field}.source", source, ("FromClaim", "FromClass")))
    return found + claimspec.config_errors(item, field, names)
