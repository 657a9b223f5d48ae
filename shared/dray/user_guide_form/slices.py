"""The user guide's ResourceSlices to ``resource.k8s.io/v1``, with dray's virtual capacities."""

from collections.abc import Iterator
from typing import Final

from dray.api.names import DRIVER, TFLOPS, VIRTUAL_TFLOPS, VIRTUAL_VRAM, VRAM
from dray.user_guide_form import yaml_adapter
from dray.user_guide_form.notes import ConversionNotes
from dray.user_guide_form.yaml_adapter import Mapping

_VALUES: Final = {
    "stringValue": "string",
    "intValue": "int",
    "boolValue": "bool",
    "versionValue": "version",
}
_PAIRS: Final = {TFLOPS: VIRTUAL_TFLOPS, VRAM: VIRTUAL_VRAM}
_POOL_NAME: Final = "pool_name"


def convert_slice(content: Mapping, notes: ConversionNotes) -> None:
    """Convert a ResourceSlice in place; pools and capacities only if the driver is dray's."""
    spec = content.get("spec")
    if not isinstance(spec, dict):
        return
    devices = spec.get("devices")
    listed = devices if isinstance(devices, list) else []
    found: list[Mapping] = [device for device in listed if isinstance(device, dict)]
    _rename_values(found, notes)
    if spec.get("driver") != DRIVER:
        return
    if notes.is_user_guide_form:
        _rename_pool(spec, found, notes)
        _set_capacities(found, notes)
    else:
        _warn(spec, found, notes)


def _attributes(device: Mapping) -> Mapping:
    found = device.get("attributes")
    return found if isinstance(found, dict) else {}


def _rename_values(devices: list[Mapping], notes: ConversionNotes) -> None:
    renamed: dict[str, None] = {}
    for device in devices:
        for value in _attributes(device).values():
            for old, new in _VALUES.items():
                if isinstance(value, dict) and old in value:
                    yaml_adapter.rename(value, old, new, value[old])
                    renamed[f"attributes: {old} → {new}: the name in v1"] = None
    for text in renamed:
        notes.change(text)


def _rename_pool(spec: Mapping, devices: list[Mapping], notes: ConversionNotes) -> None:
    pool, node = spec.get("pool"), spec.get("nodeName")
    if not isinstance(pool, dict) or not node or pool.get("name") == node:
        return
    gpu_pool = str(pool.get("name", ""))
    pool["name"] = node
    notes.change(
        f"pool.name {gpu_pool} → {node}: the slices of a pool must be complete together, "
        "so the pool is the node"
    )
    for device in devices:
        if gpu_pool and _POOL_NAME not in _attributes(device):
            if "attributes" not in device:
                device["attributes"] = yaml_adapter.mapping()
            value = yaml_adapter.mapping()
            value["string"] = yaml_adapter.quoted(gpu_pool)
            device["attributes"][_POOL_NAME] = value
            notes.change(f"device {device.get('name', '')}: the GPUPool kept as {_POOL_NAME}")


def _set_capacities(devices: list[Mapping], notes: ConversionNotes) -> None:
    for name, capacity in _shared_capacities(devices):
        for physical, virtual in _PAIRS.items():
            _sell_virtually(capacity, physical, virtual, name, notes)


def _shared_capacities(devices: list[Mapping]) -> Iterator[tuple[str, Mapping]]:
    """For each device that several pods may share, words for it and its capacities."""
    for device in devices:
        capacity = device.get("capacity")
        if device.get("allowMultipleAllocations") is True and isinstance(capacity, dict):
            yield f"device {device.get('name', '')}", capacity


def _warn(spec: Mapping, devices: list[Mapping], notes: ConversionNotes) -> None:
    """Add warnings about a slice that Kubernetes accepts without a change."""
    pool, node = spec.get("pool"), spec.get("nodeName")
    if isinstance(pool, dict) and node and pool.get("name") != node:
        notes.warn(
            f"pool.name {pool.get('name', '')} is not the node's: the slices of a pool must be "
            "complete together, so the pool should be the node"
        )
    for name, capacity in _shared_capacities(devices):
        for physical in _PAIRS:
            amount = capacity.get(physical)
            if isinstance(amount, dict) and "requestPolicy" not in amount:
                notes.warn(
                    f"{name}: {physical} has no requestPolicy, so a claim that does not ask for it "
                    "takes all of it"
                )


def _sell_virtually(
    capacity: Mapping, physical: str, virtual: str, device: str, notes: ConversionNotes
) -> None:
    """Set the request policies of the pair: only the virtual capacity is consumed, and every claim
    consumes some of it."""
    amount = capacity.get(physical)
    if not isinstance(amount, dict) or "value" not in amount:
        return
    if virtual not in capacity:
        budget = yaml_adapter.mapping()
        budget["value"] = amount["value"]
        yaml_adapter.insert_after(capacity, physical, virtual, budget)
        notes.change(f"{device}: {virtual} added, equal to {physical}: requests consume it")
    if "requestPolicy" not in amount:
        policy = yaml_adapter.mapping()
        policy["default"] = yaml_adapter.quoted("0")
        policy["validValues"] = yaml_adapter.short_sequence([yaml_adapter.quoted("0")])
        yaml_adapter.append(amount, "requestPolicy", policy)
        notes.change(f"{device}: requests of {physical} may only be 0: they consume {virtual}")
    budget = capacity[virtual]
    if isinstance(budget, dict) and "value" in budget and "requestPolicy" not in budget:
        policy = yaml_adapter.mapping()
        policy["default"] = budget["value"]
        policy["validRange"] = yaml_adapter.mapping()
        policy["validRange"]["min"] = yaml_adapter.quoted("1")
        yaml_adapter.append(budget, "requestPolicy", policy)
        notes.change(
            f"{device}: {virtual} defaults to its full value: a claim that states none takes all"
        )
