"""Replicas share the domains evenly, and nobody moves one that need not move."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from dray.api.errors import PermanentError
from dray.bus.memory import MemoryBus
from dray.bus.topology import STREAMS, log_spec
from dray.messages.base import encode
from dray.messages.decisions import Opened, domain_lease, log_subject
from dray.messages.facts import NodeObserved
from dray_allocator.service.leases import LeaseHolder
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import Event, Serve, StandBy
from dray_allocator.values.options import AllocatorOptions

DOMAINS = tuple(f"pool-{number}" for number in range(16))


class Replica:
    """The leases of one allocator that has read everything there is."""

    def __init__(self, name: str, bus: MemoryBus, domains=DOMAINS) -> None:
        self.state = AllocatorState(AllocatorOptions(writer=name))
        self.state.facts.synced = True
        for domain in domains:
            made = self.state.domains[domain] = SchedulingDomain(domain, 1, read=True)
            made.current.sequence = 1
        self.serves: dict[str, None] = {}
        self.moves: Counter[str] = Counter()
        self.attends: tuple[str, ...] | None = ()
        self.bus = bus.peer()
        self._serving = LeaseHolder(
            self.bus,
            self.state,
            self._hand,
            subscribe=self._attend,
            lease_ttl_s=1.0,
            lease_renewal_s=0.2,
        )
        self._task = asyncio.create_task(self._serving.run())

    async def _hand(self, event: Event) -> None:
        if isinstance(event, Serve):
            self.serves[event.domain] = None
        elif isinstance(event, StandBy):
            self.serves.pop(event.domain, None)
            self.moves[event.domain] += 1

    def _attend(self, pools: tuple[str, ...] | None) -> None:
        self.attends = pools

    async def die(self) -> None:
        """Without a word."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def stop(self) -> None:
        await self.die()
        await self._serving.stand_by()
        await self._serving.release()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def evenly(*replicas: Replica, domains=DOMAINS) -> bool:
    """Whether every domain has one server, and nobody more than a fair share."""
    served = [name for one in replicas for name in one.serves]
    most = -(-len(domains) // len(replicas))
    return sorted(served) == sorted(domains) and all(len(one.serves) <= most for one in replicas)


@pytest.fixture
async def bus() -> MemoryBus:
    made = MemoryBus()
    for spec in (*STREAMS, *(log_spec(domain, 1) for domain in DOMAINS)):
        await made.ensure(spec)
    for domain in DOMAINS:
        opened = Opened(domain=domain, epoch=1, writer="c", facts_sequence=0, now_unix_s=0.0)
        message = encode(opened, source="/c").to(log_subject(domain, 1))
        await made.append(message, expected_last=0)
    return made


async def test_one_that_is_added_takes_its_share_and_those_left_take_over(bus):
    one = Replica("one", bus)
    await until(lambda: evenly(one))
    two = Replica("two", bus)
    await until(lambda: evenly(one, two))
    assert sum(one.moves.values()) == 8, "a domain moved that need not"
    three = Replica("three", bus)
    await until(lambda: evenly(one, two, three))
    await two.die()
    await until(lambda: evenly(one, three))
    await three.stop()
    await until(lambda: evenly(one))
    await one.stop()


async def test_a_single_domain_stays_where_it_is(bus):
    one = Replica("one", bus, DOMAINS[:1])
    await until(lambda: evenly(one, domains=DOMAINS[:1]))
    two = Replica("two", bus, DOMAINS[:1])
    await until(lambda: two._serving._replicas == 2 and one._serving._replicas == 2)
    assert (list(one.serves), list(two.serves)) == ([DOMAINS[0]], [])
    await one.stop()
    await until(lambda: list(two.serves) == [DOMAINS[0]])
    await two.stop()


async def test_a_thousand_leases_are_renewed_in_parts_and_none_is_asked_for_in_between(bus):
    asked: list[str] = []
    on_their_way, most = 0, 0
    acquire = bus.acquire

    async def noting(key: str, holder: str, *, ttl_s: float) -> bool:
        nonlocal on_their_way, most
        asked.append(key)
        on_their_way += 1
        most = max(most, on_their_way)
        await asyncio.sleep(0)
        on_their_way -= 1
        return await acquire(key, holder, ttl_s=ttl_s)

    many = tuple(f"pool-{number}" for number in range(1000))
    for domain in many:
        await bus.ensure(log_spec(domain, 1))
    replica = Replica("one", bus, many)
    await replica.die()
    replica.bus.acquire = noting
    leases, loop = replica._serving, asyncio.get_running_loop()
    await leases._turn()
    assert len(replica.serves) == 1000
    leases._due_s = [loop.time() + 60] * 4
    asked.clear()
    await leases._turn()
    assert asked == []
    leases._counted_s, renewed = loop.time() + 60, []
    for part in range(4):
        leases._due_s, most = [loop.time() + 60] * 4, 0
        leases._due_s[part] = loop.time()
        asked.clear()
        await leases._turn()
        assert most == len(asked) < 300, "a part, and all of it together"
        renewed += asked
    assert sorted(renewed) == sorted(map(domain_lease, many)), "each once"


async def test_parts_of_the_leases_become_due_one_after_another(bus):
    replica = Replica("one", bus)
    await replica.die()
    leases = replica._serving
    leases._due_s = [0.0] * 4
    due = [leases._due_parts(now_s) for now_s in (1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3)]
    assert due[0] == [0, 1, 2, 3]
    assert sorted(part for parts in due[1:5] for part in parts) == [0, 1, 2, 3]
    assert max(map(len, due[1:])) == 1


async def test_one_that_has_not_read_everything_gets_nothing(bus):
    one = Replica("one", bus)
    late = Replica("late", bus)
    late.state.domains["pool-3"].read = False
    await until(lambda: evenly(one))
    assert not late.serves
    late.state.domains["pool-3"].read = True
    await until(lambda: evenly(one, late))
    await one.stop()
    await late.stop()


async def test_a_lease_is_kept_while_appends_are_under_way(bus):
    one = Replica("one", bus)
    await until(lambda: evenly(one))
    for domain in one.state.domains.values():
        domain.appended.append(
            (2, Opened(domain=domain.name, epoch=1, writer="one", facts_sequence=0, now_unix_s=0.0))
        )
    two = Replica("two", bus)
    await until(lambda: len(one.serves) == 8)
    assert not two.serves
    for domain in one.state.domains.values():
        domain.appended.clear()
    await until(lambda: evenly(one, two))
    await one.stop()
    await two.stop()


async def test_replicas_subscribe_to_the_pools_they_serve_and_a_single_one_to_all(bus):
    one = Replica("one", bus)
    await until(lambda: evenly(one) and one.attends is None)
    two = Replica("two", bus)
    await until(lambda: one.attends == tuple(sorted(one.serves)) and evenly(one, two))
    await until(lambda: two.attends == tuple(sorted(two.serves)))
    await two.die()
    await until(lambda: evenly(one) and one.attends is None)
    await one.stop()


async def test_dependencies_of_a_pool_are_subscribed_with_it(bus, make_world):
    one, two = Replica("one", bus), Replica("two", bus)
    await until(lambda: evenly(one, two) and one.attends == tuple(sorted(one.serves)))
    mine, other = next(iter(one.serves)), next(iter(two.serves))
    moved = NodeObserved(revision=1, node=make_world.a_node("n", mine), former=(other,))
    one.state.pool_dependencies.node(moved)
    await until(lambda: one.attends == tuple(sorted([*one.serves, other])))
    await one.stop()
    await two.stop()


async def test_a_replica_without_pools_subscribes_to_all(bus):
    one = Replica("one", bus, DOMAINS[:1])
    await until(lambda: evenly(one, domains=DOMAINS[:1]))
    two = Replica("two", bus, DOMAINS[:1])
    await until(lambda: two.attends is None and not two.serves)
    await one.stop()
    await two.stop()


async def test_a_bus_that_is_away_is_complained_of_once_a_domain(bus):
    with capture_logs() as logs:
        one = Replica("one", bus)
        await until(lambda: evenly(one))
        one.bus.disconnect()
        await until(lambda: not one.serves)
        turns = one._serving._counted_s
        await until(lambda: one._serving._counted_s > turns + 1.0)
        one.bus.reconnect()
        await until(lambda: evenly(one))
        one.bus.disconnect()
        await until(lambda: not one.serves)
        await one.die()
    complaints = Counter(
        line["domain"] for line in logs if line["event"] == "the lease can't be renewed"
    )
    assert complaints == dict.fromkeys(DOMAINS, 2)


async def test_leases_that_are_refused_are_asked_for_again(bus):
    """As a bus does whose account is full: until somebody makes room."""
    one = Replica("one", bus)
    await until(lambda: evenly(one))
    for _ in range(2 * len(DOMAINS)):
        one.bus.fail_next("acquire", PermanentError("resource limits exceeded"))
    await until(lambda: one.moves.total() > 0 or one._task.done())
    await until(lambda: evenly(one) or one._task.done())
    assert not one._task.done()
    assert one.moves
    await one.stop()


async def test_a_bug_at_one_lease_leaves_no_other_renewal_running(bus):
    """The replica ends: whatever goes on would serve pools without anybody to see it fail."""
    one = Replica("one", bus)
    await until(lambda: evenly(one))
    before = asyncio.all_tasks()
    acquire, blocked = one.bus.acquire, asyncio.Event()

    async def failing(key: str, holder: str, *, ttl_s: float) -> bool:
        if key == domain_lease(DOMAINS[0]):
            raise ZeroDivisionError
        if key.startswith("replica."):
            return await acquire(key, holder, ttl_s=ttl_s)
        await blocked.wait()
        return True

    one.bus.acquire = failing
    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        await one._task
    assert not asyncio.all_tasks() - before
