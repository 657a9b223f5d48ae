"""The user guide's names for values of devices (§5.2, §5.3), and why other names are refused."""

from typing import Final

from dray.api.names import TFLOPS, VIRTUAL_TFLOPS, VIRTUAL_VRAM, VRAM

ATTRIBUTES: Final = {
    "model": "string",
    "pool_name": "string",
    "pod_namespace": "string",
    "uuid": "string",
    "phase": "string",
    "used_by": "string",
    "node_name": "string",
    "qos": "string",
    "node_total_tflops": "quantity",
    "node_total_vram": "quantity",
    "node_total_gpus": "int",
    "node_managed_gpus": "int",
    "node_virtual_tflops": "quantity",
    "node_virtual_vram": "quantity",
}
"""§5.2. ``quantity`` attributes are published as strings such as ``320Gi``."""

CAPACITIES: Final = (TFLOPS, VRAM, VIRTUAL_TFLOPS, VIRTUAL_VRAM)
"""§5.3."""

_QUOTA: Final = (
    "quota belongs to a namespace, it is not an attribute of a device (user guide §5.8.1)"
)
_LIMIT: Final = (
    "limits are enforced while the pod runs and never select devices (user guide §5.8.2)"
)
REFUSED: Final = {
    "quota": _QUOTA,
    "quotas": _QUOTA,
    "limit": _LIMIT,
    "limits": _LIMIT,
    "tflops_limit": _LIMIT,
    "vram_limit": _LIMIT,
}
"""Names that a reader of the user guide may try, and the user guide's reasons against them."""
