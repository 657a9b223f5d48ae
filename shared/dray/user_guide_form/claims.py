"""The user guide's claim templates, and claims of the same form, to ``resource.k8s.io/v1``."""

from typing import Any, Final

from dray.api.errors import InvalidInputError
from dray.api.names import DEVICE_CLASS, TEMPLATE_LABEL
from dray.cel.errors import CelError
from dray.user_guide_form import yaml_adapter
from dray.user_guide_form.dialect import translate
from dray.user_guide_form.notes import ConversionNotes
from dray.user_guide_form.yaml_adapter import Mapping

_OUTSIDE_EXACTLY: Final = ("deviceClassName", "selector", "selectors", "allocationMode", "count",
                  "adminAccess", "tolerations", "capacity")  # fmt: skip
"""Fields that are inside ``exactly`` in v1."""


def convert_template(content: Mapping, notes: ConversionNotes) -> None:
    """Convert a ResourceClaimTemplate in place."""
    spec = _mapping(content, "spec")
    inner = spec.get("spec")
    if isinstance(inner, dict):
        _convert_devices(inner, "spec.spec", notes)
    _copy_label(content, spec, notes)


def convert_claim(content: Mapping, notes: ConversionNotes) -> None:
    """Convert a ResourceClaim in place."""
    _convert_devices(_mapping(content, "spec"), "spec", notes)


def convert_class(content: Mapping, notes: ConversionNotes) -> None:
    """Convert a DeviceClass in place. Only its selectors can have the user guide's form."""
    spec = _mapping(content, "spec")
    _wrap_selector(spec, "spec", notes)
    _translate_selectors(spec, "spec", notes)


def _mapping(content: Mapping, key: str) -> Mapping:
    found = content.get(key)
    return found if isinstance(found, dict) else {}


def _copy_label(content: Mapping, spec: Mapping, notes: ConversionNotes) -> None:
    value = _mapping(_mapping(content, "metadata"), "labels").get(TEMPLATE_LABEL)
    metadata = spec.get("metadata")
    labels = _mapping(metadata, "labels") if isinstance(metadata, dict) else {}
    if value is None or TEMPLATE_LABEL in labels:
        return
    if not notes.is_user_guide_form:
        notes.warn(
            f"label {TEMPLATE_LABEL} reaches no claim: only those of spec.metadata.labels do"
        )
        return
    if not isinstance(metadata, dict):
        metadata = yaml_adapter.mapping()
        yaml_adapter.insert_after(spec, "", "metadata", metadata)
    if "labels" not in metadata:
        metadata["labels"] = yaml_adapter.mapping()
    metadata["labels"][TEMPLATE_LABEL] = value
    notes.change(
        f"label {TEMPLATE_LABEL} copied into spec.metadata.labels: "
        "only the labels there reach the claims"
    )


def _convert_devices(spec: Mapping, path: str, notes: ConversionNotes) -> None:
    requests = _mapping(spec, "devices").get("requests")
    found = [(f"{path}.devices.requests[{_name(r)}]", r) for r in _mappings(requests)]
    for where, request in found:
        _convert_request(request, where, notes)
    for where, request in found:
        _drop_empty_capacity(_mapping(request, "exactly"), f"{where}.exactly", notes)
        for part in _mappings(request.get("firstAvailable")):
            _drop_empty_capacity(part, f"{where}.firstAvailable[{_name(part)}]", notes)


def _mappings(listed: Any) -> list[Mapping]:
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _name(entry: Mapping) -> str:
    return str(entry.get("name", ""))


def _convert_request(request: Mapping, path: str, notes: ConversionNotes) -> None:
    alternatives = request.get("firstAvailable")
    if isinstance(alternatives, list):
        for part in _mappings(alternatives):
            _convert_exactly(part, f"{path}.firstAvailable[{_name(part)}]", notes)
        return
    exactly = request.get("exactly")
    if not isinstance(exactly, dict):
        exactly = request["exactly"] = yaml_adapter.mapping()
        notes.change(f"{path}.exactly added: v1 has the request inside it")
    _move_inside(request, exactly, path, notes)
    _convert_exactly(exactly, f"{path}.exactly", notes)


def _move_inside(request: Mapping, exactly: Mapping, path: str, notes: ConversionNotes) -> None:
    for key in _OUTSIDE_EXACTLY:
        if key not in request:
            continue
        if key in exactly and exactly[key] != request[key]:
            raise InvalidInputError(
                f"{path}: {key} is set next to exactly and inside it, with different values; "
                "keep the one inside"
            )
        value = request.pop(key)
        if key not in exactly:
            yaml_adapter.insert_after(exactly, "count", key, value)
        notes.change(f"{path}.{key} moved into exactly: v1 knows it only there")


def _convert_exactly(exactly: Mapping, path: str, notes: ConversionNotes) -> None:
    if not exactly.get("deviceClassName"):
        after = "allocationMode" if "allocationMode" in exactly else "count"
        exactly.pop("deviceClassName", None)
        yaml_adapter.insert_after(exactly, after, "deviceClassName", DEVICE_CLASS)
        notes.change(f"{path}.deviceClassName: {DEVICE_CLASS} added: a class is required")
    _wrap_selector(exactly, path, notes)
    if exactly["deviceClassName"] == DEVICE_CLASS:
        _translate_selectors(exactly, path, notes)


def _drop_empty_capacity(exactly: Mapping, path: str, notes: ConversionNotes) -> None:
    capacity = exactly.get("capacity")
    if not isinstance(capacity, dict) or capacity.get("requests"):
        return
    what = "its requests are empty, and what a claim doesn't state it takes whole"
    if not notes.is_user_guide_form:
        notes.warn(f"{path}.capacity: {what}")
        return
    del exactly["capacity"]
    notes.change(f"{path}.capacity dropped: {what}; a pod's annotations state them for its claim")


def _wrap_selector(holder: Mapping, path: str, notes: ConversionNotes) -> None:
    if "selector" in holder:
        selector = holder["selector"]
        yaml_adapter.rename(holder, "selector", "selectors", yaml_adapter.sequence([selector]))
        notes.change(f"{path}.selector → selectors: v1 has a list of them")


def _translate_selectors(holder: Mapping, path: str, notes: ConversionNotes) -> None:
    """Translate selectors. Only selectors for dray's devices can be in the user guide's dialect."""
    selectors = holder.get("selectors")
    for position, selector in enumerate(selectors if isinstance(selectors, list) else []):
        cel = selector.get("cel") if isinstance(selector, dict) else None
        if isinstance(cel, dict) and isinstance(cel.get("expression"), str):
            _translate(cel, f"{path}.selectors[{position}]", notes)


def _translate(cel: Mapping, path: str, notes: ConversionNotes) -> None:
    original: Any = cel["expression"]
    try:
        translation = translate(original)
    except CelError as error:
        raise InvalidInputError(f"{path}.cel.expression: {error}") from error
    if translation.expression != original:
        cel["expression"] = yaml_adapter.like(translation.expression, original)
    for change in translation.changes:
        notes.change(f"{path}.cel.expression: {change}")
    for warning in translation.warnings:
        notes.warn(f"{path}.cel.expression: {warning}")
