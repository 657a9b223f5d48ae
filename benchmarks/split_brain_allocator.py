"""An allocator that acts as the leader of every domain without holding the leases; for tests.

Only the log's fence keeps several of them from allocating a device twice.
"""

import os
import sys
from collections.abc import Mapping, Sequence

from dray.bus.jetstream import JetStreamBus
from dray_allocator.__main__ import main


async def _acquire(bus: JetStreamBus, key: str, holder: str, *, ttl_s: float) -> bool:
    return True


async def _acquire_all(
    bus: JetStreamBus, keys: Sequence[str], holder: str, *, ttl_s: float
) -> list[bool]:
    return [True for _ in keys]


async def _leases(bus: JetStreamBus, prefix: str) -> tuple[str, ...]:
    return ()


def run_split_brain_allocator(environment: Mapping[str, str]) -> None:
    """Run an allocator with these settings in this process, until it is stopped."""
    os.environ.update(environment)
    JetStreamBus.acquire = _acquire  # type: ignore[assignment,method-assign]
    JetStreamBus.acquire_all = _acquire_all  # type: ignore[assignment,method-assign]
    JetStreamBus.leases = _leases  # type: ignore[assignment,method-assign]
    sys.exit(main())
