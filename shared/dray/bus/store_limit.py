"""How full the store of NATS may be. Pure."""

from typing import Final

from dray.bus.ports import StoreUse

_ALARM_SHARE: Final = 0.8
"""Share of the store from which on it is reported as nearly full."""


def store_problem(use: StoreUse) -> str | None:
    """Why the store needs attention, or None."""
    if use.limit_bytes is None or use.bytes < _ALARM_SHARE * use.limit_bytes:
        return None
    return (
        f"NATS stores {use.bytes} of {use.limit_bytes} bytes: once it is full, nothing can be "
        "appended and nothing is decided; raise max_file_store of nats-server and its disk, or "
        "lower DRAY_LOGS__KEEP_FOR, DRAY_LOGS__KEEP_BYTES and DRAY_STREAMS__…"
    )
