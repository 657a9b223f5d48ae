"""How full the NATS store may be. Pure."""

from typing import Final

from dray.bus.ports import StoreUse

_ALARM_SHARE: Final = 0.8
"""The store is reported as nearly full from this share on."""


def store_problem(use: StoreUse) -> str | None:
    """Why the store needs attention, or None."""
    if use.limit_bytes is None or use.bytes < _ALARM_SHARE * use.limit_bytes:
        return None
    return (
        f"NATS stores {use.bytes} of {use.limit_bytes} bytes: once it is full, nothing can be "
        "appended and nothing is decided; raise max_file_store of nats-server and its disk, or "
        "lower DRAY_LOGS__KEEP_FOR, DRAY_LOGS__KEEP_BYTES and DRAY_STREAMS__…"
    )
