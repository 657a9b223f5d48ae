"""Which logs are followed, and which closed, when a term begins."""

import asyncio
from typing import Any, cast

from dray.bus.memory import MemoryBus
from dray.kube.memory import MemoryKube
from dray.kube.ports import POOLS, Changed
from dray.runtime.clock import SystemClock
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.informers import Informers
from dray_claim_controller.logs.epochs import Epochs
from dray_claim_controller.logs.followers import Followers

BOUND_S = 60.0


class Term:
    """Epochs of a term that found a pool gone, and notes what is asked of it."""

    def __init__(self) -> None:
        self.closing = {"p"}
        self.calls: list[str] = []
        self.opened = asyncio.Event()

    def orphans(self) -> list[str]:
        return []

    def begin_closing(self, domain: str) -> None:
        self.closing.add(domain)

    async def close(self, domain: str) -> None:
        self.calls.append(f"close {domain}")
        self.closing.discard(domain)

    async def open(self, domain: str, seen_epoch: int = 0, seen_sequence: int = 0) -> int:
        self.calls.append(f"open {domain}")
        self.opened.set()
        await asyncio.Event().wait()
        return 1


async def test_a_pool_made_again_while_a_term_begins_is_closed_and_then_served() -> None:
    """The term began to close it; when the logs are followed, it is not an orphan any more."""
    informers = Informers(MemoryKube(), ObjectCache())
    term = Term()
    metadata = {"name": "p", "uid": "uid-made-again", "resourceVersion": "7"}
    informers.cache.apply(POOLS, Changed({"metadata": metadata, "spec": {}}))
    followers = Followers(
        MemoryBus(),
        informers,
        cast(Epochs, term),
        SystemClock(),
        decided=_nothing,
        waiting=_nothing,
    )
    task = asyncio.create_task(followers.run())
    async with asyncio.timeout(BOUND_S):
        await term.opened.wait()
    task.cancel()
    await asyncio.wait([task])
    assert term.calls == ["close p", "open p"]


def _nothing(_: Any) -> None:
    pass
