"""Whether decision logs are what one writer at a time writes."""

from collections.abc import Iterator

from dray.bus.memory import MemoryBus
from dray.messages.decisions import Decided, decode_record


def repeated_attempts(bus: MemoryBus) -> Iterator[str]:
    """Decisions of a claim whose attempt is not above an earlier one's: somebody decided who had
    not folded what was there."""
    for name, stream in bus.server.streams.items():
        if not name.startswith("DRAY_DECISIONS"):
            continue
        highest: dict[str, int] = {}
        for message in stream.after(1, ()):
            record = decode_record(message.payload)
            for pod in record.pods if isinstance(record, Decided) else ():
                for claim in pod.claims:
                    if claim.attempt <= highest.get(claim.uid, 0):
                        yield f"{name} has attempt {claim.attempt} of {claim.name} twice"
                    highest[claim.uid] = claim.attempt
