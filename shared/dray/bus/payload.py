"""The maximum message size that dray needs from the bus, and the reason."""

from typing import Final

from dray.bus.ports import BusUnavailableError

RECOMMENDED_BYTES: Final = 8 * 2**20
"""A Kubernetes object has up to 1.5 MiB (etcd's limit for a request). The fact of a slice contains
the object twice, and so does a recorded AdmissionReview. This is also the highest value that
nats-server accepts without a warning."""
MINIMUM_BYTES: Final = 2**20
"""nats-server's default ``max_payload``. It is enough for records, and for the part of a fact that
is published when the whole fact is too large."""
_MIB: Final = 2**20


def check_payload(max_payload_bytes: int) -> None:
    """Check that dray works with a server of this ``max_payload``.

    Raises:
        BusUnavailableError: it is too small.
    """
    if max_payload_bytes < MINIMUM_BYTES:
        raise BusUnavailableError(
            f"the server takes messages of {max_payload_bytes} bytes at most (max_payload), dray "
            f"needs {MINIMUM_BYTES} or more: set max_payload: 8MB in nats-server's configuration"
        )


def payload_problem(max_payload_bytes: int | None) -> str | None:
    """The effect of a server's limit, and the remedy. None: it suffices, or is not known yet."""
    if max_payload_bytes is None or max_payload_bytes >= RECOMMENDED_BYTES:
        return None
    return (
        f"NATS takes messages of {max_payload_bytes / _MIB:g} MiB at most (max_payload), expected "
        f"{RECOMMENDED_BYTES / _MIB:g} MiB: the fact of a longer object is published only in part "
        "(event TooLargeForBus); set max_payload: 8MB in nats-server's configuration"
    )
