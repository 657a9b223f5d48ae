"""How long a message the bus should take, and why."""

from typing import Final

from dray.bus.ports import BusUnavailableError

RECOMMENDED_BYTES: Final = 8 * 2**20
"""An object of Kubernetes has up to 1.5 MiB (etcd's limit of a request); the fact of a slice holds
it twice, and an AdmissionReview that is recorded holds its object twice, too. It is also the
highest value that nats-server takes without a warning."""
MINIMUM_BYTES: Final = 2**20
"""What nats-server takes if nobody sets another ``max_payload``. What dray cuts to fit, a record or
the part of a fact that counts against others, fits this."""
_MIB: Final = 2**20


def check_payload(max_payload_bytes: int) -> None:
    """Check that dray works with a server that takes messages of so many bytes.

    Raises:
        BusUnavailableError: it takes too little.
    """
    if max_payload_bytes < MINIMUM_BYTES:
        raise BusUnavailableError(
            f"the server takes messages of {max_payload_bytes} bytes at most (max_payload), dray "
            f"needs {MINIMUM_BYTES} or more: set max_payload: 8MB in nats-server's configuration"
        )


def payload_problem(max_payload_bytes: int | None) -> str | None:
    """What a server's limit costs, and what to do; None where it is enough, or not known yet."""
    if max_payload_bytes is None or max_payload_bytes >= RECOMMENDED_BYTES:
        return None
    return (
        f"NATS takes messages of {max_payload_bytes / _MIB:g} MiB at most (max_payload), expected "
        f"{RECOMMENDED_BYTES / _MIB:g} MiB: the fact of a longer object is published in part only "
        "(event TooLargeForBus); set max_payload: 8MB in nats-server's configuration"
    )
