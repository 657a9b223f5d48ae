"""Which logs are followed, and which closed, when a term begins."""

import asyncio
from typing import Any, cast

import pytest

from dray.bus.memory import MemoryBus
from dray.bus.topology import log_spec
from dray.kube.memory import MemoryKube
from dray.kube.ports import POOLS, Changed
from dray.messages.base import Outgoing
from dray.messages.decisions import Waiting, encode_record, log_stream, log_subject
from dray.messages.facts import CheckpointPosition, DomainObserved
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
        self.lost: dict[str, int] = {}
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


class OpenTerm(Term):
    """Epochs of a term with one log, which is there, until it is to be opened again."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = set()

    async def open(self, domain: str, seen_epoch: int = 0, seen_sequence: int = 0) -> int:
        if self.calls:
            return await super().open(domain, seen_epoch, seen_sequence)
        self.calls.append(f"open {domain}")
        return 1


@pytest.mark.parametrize("is_short", [True, False], ids=["short", "another record"])
async def test_what_a_reader_finds_of_a_lost_log_is_remembered(is_short: bool) -> None:
    """The log is short, or has another record where a checkpoint was published. It may have grown
    past that when it is opened again."""
    informers, term, bus = Informers(MemoryKube(), ObjectCache()), OpenTerm(), MemoryBus()
    metadata = {"name": "p", "uid": "uid-p", "resourceVersion": "7"}
    informers.cache.apply(POOLS, Changed({"metadata": metadata, "spec": {}}))
    await bus.ensure(log_spec("p", 1))
    head = {"domain": "p", "epoch": 1, "writer": "t", "facts_sequence": 1, "now_unix_s": 0.0}
    pod = {"pod_uid": "u", "namespace": "ns", "name": "n", "reasons": ()}
    for last in range(3):
        record = encode_record(Waiting(**head, **pod))
        await bus.append(Outgoing(log_subject("p", 1), record), expected_last=last)
    checkpoint = CheckpointPosition(sequence=2, now_unix_s=0.0)
    fact = DomainObserved(revision=1, domain="p", epoch=1, checkpoints=(checkpoint,))
    read = asyncio.Event()
    followers = Followers(
        bus,
        informers,
        cast(Epochs, term),
        SystemClock(),
        decided=_nothing,
        waiting=lambda _: read.set(),
        published=lambda _: None if is_short else fact,
    )
    task = asyncio.create_task(followers.run())
    async with asyncio.timeout(BOUND_S):
        if is_short:
            await read.wait()
            assert not term.lost
            bus.server.named(log_stream("p", 1)).lose_tail(1)
        await term.opened.wait()
    assert term.lost == {"p": 1}
    task.cancel()
    await asyncio.wait([task])


def _nothing(_: Any) -> None:
    pass
