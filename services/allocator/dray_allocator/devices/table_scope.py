"""What the node table can decide. Other claims and devices need the search on each node."""

from dray.api.claims import ClaimSpec, DeviceRequest
from dray.api.devices import Device, ResourceSlice


def is_claim_beyond_table(spec: ClaimSpec) -> bool:
    """Whether a claim has alternatives, allocationMode All, administrative access, derived
    attributes or tolerationSeconds."""
    return any(map(_is_request_beyond_table, spec.requests))


def _is_request_beyond_table(request: DeviceRequest) -> bool:
    return (
        bool(request.first_available or request.derived_attributes or request.admin_access)
        or request.mode != "ExactCount"
        or any(one.seconds is not None for one in request.tolerations)
    )


def is_slice_beyond_table(part: ResourceSlice) -> bool:
    """Whether a slice is not for a single node, has shared counters, or has a device beyond the
    node table."""
    return (
        not part.node or bool(part.counter_sets) or any(map(_is_device_beyond_table, part.devices))
    )


def _is_device_beyond_table(device: Device) -> bool:
    return (
        bool(device.consumes or device.binding_conditions or device.binds_to_node)
        or device.reach.is_stated
        or tuple in map(type, device.attributes.values())
    )


def fields_beyond_table(device: Device) -> tuple[str, ...]:
    """The fields of a device that the node table does not support, by their names in the API."""
    if not _is_device_beyond_table(device):
        return ()
    stated = {
        "consumesCounters": device.consumes,
        "bindsToNode": device.binds_to_node,
        "bindingConditions": device.binding_conditions,
        "nodeName": device.reach.node,
        "nodeSelector": device.reach.selector,
        "allNodes": device.reach.all_nodes,
    }
    lists = [name for name, value in device.attributes.items() if isinstance(value, tuple)]
    return (
        *(name for name, value in stated.items() if value),
        *(f"list attribute {name}" for name in lists),
    )
