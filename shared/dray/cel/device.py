"""Views of devices that are published in ResourceSlices."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from dray.api.devices import AttributeValue, Device, Version
from dray.api.errors import InvalidInputError
from dray.api.quantities import parse_quantity
from dray.cel.view import DeviceView, Published

_KINDS = {"int": int, "bool": bool, "string": str, "version": str}
"""Fields of an attribute with one value. With an ``s`` appended, they hold several values."""


def view_of(driver: str, device: Device, *, shows_sharing: bool = True) -> DeviceView:
    """The view of a device in a slice of ``driver``. It is broken if a part can't be read.

    ``shows_sharing``: whether selectors see that the device can be shared.
    """
    published, broken = device.attributes, ""
    if None in published.values():
        unknown = next(name for name, value in published.items() if value is None)
        published, broken = {}, f"attribute {unknown}: unsupported attribute value"
    attributes = cast("Mapping[str, Published]", published)
    capacity = {}
    for name, amount in device.capacity.items():
        try:
            capacity[name] = parse_quantity(amount.value)
        except InvalidInputError as error:
            broken = broken or f"capacity {name}: {error}"
    is_shared = shows_sharing and device.allow_multiple_allocations
    return DeviceView(driver, attributes, capacity, is_shared, broken)


def view_from_json(driver: str, device: Mapping[str, Any]) -> DeviceView:
    """The view of a device written as in a ``resource.k8s.io/v1`` ResourceSlice.

    Raises:
        InvalidInputError: a field has another type than in the API.
    """
    attributes: dict[str, Published] = {}
    capacity, broken = {}, ""
    for name, value in _named(device, "attributes"):
        found = _published(name, value)
        if found is None:
            broken = broken or f"attribute {name}: unsupported attribute value"
        else:
            attributes[name] = found
    for name, amount in _named(device, "capacity"):
        try:
            capacity[name] = parse_quantity(str(amount.get("value") or 0))
        except InvalidInputError as error:
            broken = broken or f"capacity {name}: {error}"
    shared = device.get("allowMultipleAllocations") is True
    return DeviceView(driver, attributes, capacity, shared, broken)


def _named(device: Mapping[str, Any], part: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The values of a part of a device, by name."""
    values = device.get(part) or {}
    if not isinstance(values, Mapping):
        raise _unexpected(f"device.{part}", values, "an object")
    for name, value in values.items():
        if not isinstance(value or {}, Mapping):
            raise _unexpected(f"device.{part}: {name}", value, "an object")
        yield str(name), value or {}


def _published(name: str, value: Mapping[str, Any]) -> Published | None:
    for kind, type_ in _KINDS.items():
        items = value.get(f"{kind}s")
        if items is not None:
            if not isinstance(items, Sequence) or isinstance(items, str):
                raise _unexpected(f"attribute {name}: {kind}s", items, "a list")
            return tuple(_item(name, kind, type_, item) for item in items)
    for kind, type_ in _KINDS.items():
        if value.get(kind) is not None:
            return _item(name, kind, type_, value[kind])
    return None


def _item(name: str, kind: str, type_: type, value: Any) -> AttributeValue:
    is_of_kind = isinstance(value, type_) and not (type_ is int and isinstance(value, bool))
    if not is_of_kind:
        raise _unexpected(f"attribute {name}: {kind}", value, type_.__name__)
    found: AttributeValue = Version(value) if kind == "version" else value
    return found


def _unexpected(what: str, seen: Any, expected: str) -> InvalidInputError:
    return InvalidInputError(f"{what} is {type(seen).__name__}, expected {expected}")
