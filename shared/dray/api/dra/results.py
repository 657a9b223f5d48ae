"""Allocations: ``AllocationResult`` in full."""

from dataclasses import dataclass, field

from dray.api.devices import DeviceId, OpaqueConfig
from dray.api.dra.asks import DeviceToleration
from dray.api.dra.nodes import NodeSelector


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """One ``DeviceRequestAllocationResult``. Quantities as text."""

    request: str
    """``main``, or ``main/sub`` for the chosen alternative."""
    id: DeviceId
    share_id: str | None = None
    consumed: dict[str, str] = field(default_factory=dict)
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocationResult:
    """The allocation of one claim."""

    devices: tuple[DeviceResult, ...] = ()
    config: tuple[OpaqueConfig, ...] = ()
    """The classes' first, then the claim's."""
    node_selector: NodeSelector | None = None
    """The nodes that can use the devices; None: all nodes."""
