"""The maximum message size that dray expects of the bus, and why."""

from typing import Final

from dray.bus.ports import BusUnavailableError

RECOMMENDED_BYTES: Final = 8 * 2**20
"""An object of Kubernetes has up to 1.5 MiB (etcd's limit of a request); the fact of a slice holds
it twice, and an AdmissionReview that is recorded holds its object twice, too. It is also the
highest value that nats-server takes without a warning."""
MINIMUM_BYTES: Final = 2**20
"""nats-server's default ``max_payload``. Records, and the part of a fact that is published when the
whole is too large, fit it."""
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
    """The effect of a server's limit and the remedy; None if it suffices or is not known yet."""
    if max_payload_bytes is None or max_payload_bytes >= RECOMMENDED_BYTES:
        return None
    return (
        f"NATS takes messages of {max_payload_bytes / _MIB:g} MiB at most (max_payload), expected "
        f"{RECOMMENDED_BYTES / _MIB:g} MiB: the fact of a longer object is published in part only "
        "(event TooLargeForBus); set max_payload: 8MB in nats-server's configuration"
    )
