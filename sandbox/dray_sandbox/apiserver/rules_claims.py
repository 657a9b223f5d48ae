"""ResourceClaims, ResourceClaimTemplates and DeviceClasses: immutability and allocation rules.

Source of the rules: `pkg/apis/resource/validation/validation.go` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from . import claimspec, metadata
from .claimspec import list_errors
from .names import dns_label, dns_subdomain, label_errors, qualified_name
from .rules import Rules, WithStatus, immutable
from .status import (
    FieldError,
    Object,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)

MAX_RESERVED_FOR = 256
MAX_RESULTS = 32
MAX_POOL_BYTES = 253


class ClaimRules(WithStatus):
    """ResourceClaim."""

    def default(self, obj: Object) -> None:
        claimspec.default_spec(obj.setdefault("spec", {}))
        allocation = obj.setdefault("status", {}).get("allocation")
        if allocation is not None:
            allocation.setdefault("devices", {})

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {}

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        found = claimspec.admin_errors(obj["spec"], "spec", self.namespace_labels)
        return found + claimspec.spec_errors(obj["spec"], "spec")

    def validate_update(self, new: Object, old: Object) -> Sequence[FieldError]:
        return immutable("spec", new["spec"], old["spec"])

    def prepare_status(self, new: Object, old: Object) -> None:
        super().prepare_status(new, old)
        _drop_deallocated(new["status"], old.get("status") or {})

    def validate_status(self, new: Object, old: Object) -> Sequence[FieldError]:
        status, before = new["status"], old.get("status") or {}
        found = _reserved_for(status, before, "deletionTimestamp" in old["metadata"])
        found += _device_statuses(status)
        allocation = status.get("allocation")
        if allocation is None:
            return found
        if before.get("allocation") is not None:
            return found + immutable("status.allocation", allocation, before["allocation"])
        return found + _allocation(allocation, claimspec.request_names(new["spec"]))


def _reserved_for(status: Object, before: Object, deleting: bool) -> list[FieldError]:
    field = "status.reservedFor"
    users = status.get("reservedFor") or []
    found = list_errors(users, MAX_RESERVED_FOR, field, _user, "uid")
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


def _allocated(status: Object) -> list[tuple[str, ...]]:
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
    return [_device_key(result) for result in results]


def _drop_deallocated(status: Object, before: Object) -> None:
    """Statuses of devices that this very write deallocates go with it."""
    gone = [key for key in _allocated(before) if key not in _allocated(status)]
    kept = [device for device in status.get("devices") or [] if _device_key(device) not in gone]
    if "devices" in status:
        status["devices"] = kept
        if not kept:
            del status["devices"]


def _device_statuses(status: Object) -> list[FieldError]:
    allocated, seen = _allocated(status), []
    found: list[FieldError] = []
    for index, device in enumerate(status.get("devices") or []):
        field, key = f"status.devices[{index}]", _device_key(device)
        found += claimspec.driver_errors(device.get("driver", ""), f"{field}.driver")
        found += pool_errors(device.get("pool", ""), f"{field}.pool")
        if key not in allocated:
            name = "/".join(key[:3])
            found.append(invalid(field, name, "must be an allocated device in the claim"))
        if key in seen:
            found.append(duplicate(field, "/".join(key[:3])))
        seen.append(key)
    return found


def _allocation(allocation: Object, names: set[str]) -> list[FieldError]:
    devices, field = allocation.get("devices") or {}, "status.allocation.devices"
    found = list_errors(
        devices.get("results") or [],
        MAX_RESULTS,
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
    if selector is not None and not selector.get("nodeSelectorTerms"):
        text = "must have at least one node selector term"
        found.append(required("status.allocation.nodeSelector.nodeSelectorTerms", text))
    return found


def _result(result: Object, field: str, names: set[str]) -> list[FieldError]:
    found = claimspec.reference(result.get("request", ""), f"{field}.request", names)
    found += claimspec.driver_errors(result.get("driver", ""), f"{field}.driver")
    found += pool_errors(result.get("pool", ""), f"{field}.pool")
    device = result.get("device", "")
    found += [invalid(f"{field}.device", device, text) for text in dns_label(device)]
    share = result.get("shareID")
    if share is not None:
        found += _uid_errors(share, f"{field}.shareID")
    found += binding_errors(result, field)
    return found


def _uid_errors(value: str, field: str) -> list[FieldError]:
    try:
        normal = str(UUID(value)) == value
    except ValueError:
        return [invalid(field, value, f"error validating uid: invalid UUID length: {len(value)}")]
    text = (
        "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with "
        "lowercase hexadecimal characters"
    )
    return [] if normal else [invalid(field, value, text)]


def _config(item: Object, field: str, names: set[str]) -> list[FieldError]:
    source, found = item.get("source", ""), []
    if not source:
        found.append(required(f"{field}.source"))
    elif source not in ("FromClaim", "FromClass"):
        found.append(not_supported(f"{field}.source", source, ("FromClaim", "FromClass")))
    return found + claimspec.config_errors(item, field, names)


def pool_errors(name: str, field: str) -> list[FieldError]:
    """Findings about a pool name: DNS subdomains joined by slashes."""
    if not name:
        return [required(field)]
    found = [too_long(field, MAX_POOL_BYTES)] if len(name) > MAX_POOL_BYTES else []
    for part in name.split("/"):
        found += [invalid(field, part, text) for text in dns_subdomain(part)]
    return found


def binding_errors(item: Object, field: str) -> list[FieldError]:
    """Findings about binding conditions: both lists or none, four each, no overlap."""
    wait = item.get("bindingConditions") or []
    fail = item.get("bindingFailureConditions") or []
    found: list[FieldError] = []
    for name, values in (("bindingConditions", wait), ("bindingFailureConditions", fail)):
        if len(values) > 4:
            found.append(too_many(f"{field}.{name}", len(values), 4))
    for index, value in enumerate(fail):
        if value in wait:
            text = "bindingFailureConditions must not overlap with bindingConditions"
            found.append(invalid(f"{field}.bindingFailureConditions[{index}]", value, text))
    if fail and not wait:
        text = "bindingConditions are required to use bindingFailureConditions"
        found.append(invalid(f"{field}.bindingConditions", wait or None, text))
    if wait and not fail:
        text = "bindingFailureConditions are required to use bindingConditions"
        found.append(invalid(f"{field}.bindingFailureConditions", fail or None, text))
    return found


class TemplateRules(Rules):
    """ResourceClaimTemplate."""

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        metadata.tidy(spec.setdefault("metadata", {}))
        claimspec.default_spec(spec.setdefault("spec", {}))

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        found = label_errors(obj["spec"]["metadata"].get("labels") or {}, "spec.metadata.labels")
        spec = obj["spec"]["spec"]
        found += claimspec.admin_errors(spec, "spec.spec", self.namespace_labels)
        return found + claimspec.spec_errors(spec, "spec.spec")

    def validate_update(self, new: Object, old: Object) -> Sequence[FieldError]:
        return immutable("spec", new["spec"], old["spec"])


class ClassRules(Rules):
    """DeviceClass."""

    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {})

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        spec = obj["spec"]
        found = claimspec.selectors_errors(spec.get("selectors") or [], "spec.selectors")
        name = spec.get("extendedResourceName")
        if name is not None and ("/" not in name or qualified_name(name)):
            text = "must be a valid extended resource name"
            found.append(invalid("spec.extendedResourceName", name, text))
        return found + list_errors(
            spec.get("config") or [],
            claimspec.MAX_CONFIGS,
            "spec.config",
            lambda item, where: claimspec.opaque_errors(item.get("opaque"), f"{where}.opaque"),
        )
