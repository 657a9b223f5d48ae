"""How much of the node's devices the prepared claims use. Pure."""

from collections.abc import Iterable, Mapping

from dray.api.quantities import parse_quantity
from dray_node_agent.decisions.inventory import PublishedGpu
from dray_node_agent.decisions.prepared_claim import PreparedClaim, PreparedDevice


def devices_in_use(
    claims: Iterable[PreparedClaim], published_gpus: Mapping[str, PublishedGpu]
) -> dict[str, float]:
    """The devices that claims use, each with the part that is taken, from 0 to 1: the part of the
    capacity that is used most. Admin access takes nothing; a device that is gone counts as
    taken."""
    taken: dict[str, dict[str, float]] = {}
    for claim in claims:
        for device in claim.devices:
            parts = taken.setdefault(device.device, {})
            for name, part in _parts(device, published_gpus.get(device.device)).items():
                parts[name] = parts.get(name, 0.0) + part
    return {device: min(max(parts.values(), default=0.0), 1.0) for device, parts in taken.items()}


def _parts(device: PreparedDevice, published: PublishedGpu | None) -> dict[str, float]:
    if device.admin_access:
        return {}
    if device.whole or published is None:
        return {"": 1.0}
    return {
        name: parse_quantity(device.consumed.get(name, "0")).nano / budget.nano
        for name, budget in published.budget.items()
    }
