"""How long a leader may write, by its own clock, and that nobody leads twice within one term."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.virtual_time import LoopClock, run_virtually

from dray.kube.memory import MemoryKube
from dray.kube.memory_refusals import InjectedRefusal
from dray.kube.ports import (
    LEASES,
    AlreadyExistsError,
    ConflictError,
    KubeError,
    KubeUnavailableError,
    NotFoundError,
    RefusedError,
)
from dray.runtime.clock import ManualClock
from dray_claim_controller.leader.election import Election, Timing
from dray_claim_controller.leader.lease import MAX_WRITE_S, HeldLease, LeaseExpiredError

TIMING = Timing(lease_s=15.0, renew_s=10.0, retry_s=2.0)
ERRORS: list[Callable[[], KubeError]] = [
    lambda: KubeUnavailableError("away"),
    lambda: ConflictError("moved"),
    lambda: NotFoundError("gone"),
    lambda: AlreadyExistsError("there"),
    lambda: RefusedError("policy", 403),
]


def held(clock: ManualClock) -> HeldLease:
    return HeldLease(clock, lease_s=15.0, renew_s=10.0)


async def test_nothing_is_written_before_the_lease_was_taken_and_after_it_was_given_up() -> None:
    clock = ManualClock()
    lease = held(clock)
    with pytest.raises(LeaseExpiredError):
        lease.timeout_s()
    lease.renewed(clock.monotonic_s())
    assert lease.timeout_s() == MAX_WRITE_S
    lease.give_up()
    with pytest.raises(LeaseExpiredError):
        lease.timeout_s()


@given(st.floats(0, 100), st.floats(0, 5))
def test_the_server_never_works_on_a_write_beyond_the_lease(slept_s: float, asked_s: float) -> None:
    async def main() -> None:
        clock = ManualClock()
        lease = held(clock)
        began_s = clock.monotonic_s()
        await clock.advance(asked_s)
        lease.renewed(began_s)
        await clock.advance(slept_s)
        age_s = clock.monotonic_s() - began_s
        if age_s >= 10.0:
            with pytest.raises(LeaseExpiredError):
                lease.timeout_s()
        else:
            assert 0 < lease.timeout_s() <= min(MAX_WRITE_S, 15.0 - age_s)

    asyncio.run(main())


def election(kube: MemoryKube, clock: LoopClock, identity: str) -> Election:
    return Election(kube, clock, name="l", namespace="n", identity=identity, timing=TIMING)


@pytest.mark.parametrize("error", ERRORS, ids=lambda make: type(make()).__name__)
@pytest.mark.parametrize("method", ["get", "update"])
def test_a_renewal_that_fails_for_a_while_ends_no_term(
    error: Callable[[], KubeError], method: str
) -> None:
    async def main(clock: LoopClock) -> None:
        kube, terms = MemoryKube(), []

        async def term() -> None:
            terms.append(clock.monotonic_s())
            await asyncio.Event().wait()

        one = election(kube, clock, "one")
        standing = asyncio.create_task(one.run(term))
        await clock.sleep(5)
        over = kube.refuse(InjectedRefusal(error(), method, LEASES))
        await clock.sleep(6)
        over()
        await clock.sleep(60)
        # Where the Lease itself seems gone, nobody may go on as if it had been held all the time.
        goes_on = not (method == "get" and isinstance(error(), NotFoundError))
        assert one.leading
        assert not standing.done()
        assert len(terms) == (1 if goes_on else 2)

    run_virtually(main)


def test_who_slept_while_another_led_begins_another_term() -> None:
    """Also where the other has given the Lease up meanwhile, so that it is free again."""

    async def main(clock: LoopClock) -> None:
        kube, terms = MemoryKube(), []

        async def term() -> None:
            terms.append(clock.monotonic_s())
            await asyncio.Event().wait()

        client, asleep = kube.peer(), asyncio.Event()

        async def sleep(*_: object) -> None:
            if not asleep.is_set():
                return
            await clock.sleep(100)
            asleep.clear()

        one = election(client, clock, "one")
        first = asyncio.create_task(one.run(term))
        await clock.sleep(1)
        asleep.set()
        client.before["get"] = sleep  # Right before it reads the Lease, it is stopped.

        other = election(kube, clock, "other")
        second = asyncio.create_task(other.run(lambda: clock.sleep(5)))
        await clock.sleep(40)
        second.cancel()
        await asyncio.wait([second])
        with pytest.raises(LeaseExpiredError):
            one.held.timeout_s()
        await clock.sleep(120)
        assert len(terms) > 1
        assert not first.done()

    run_virtually(main)


@pytest.mark.parametrize("gave_up", [False, True])
def test_a_lease_that_another_has_or_had_is_not_renewed(gave_up: bool) -> None:
    async def main(clock: LoopClock) -> None:
        kube, ended = MemoryKube(), asyncio.Event()

        async def term() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        one = election(kube, clock, "one")
        standing = asyncio.create_task(one.run(term))
        await clock.sleep(5)
        holder = "" if gave_up else "other"
        await kube.patch(LEASES, "l", {"spec": {"holderIdentity": holder}}, "n")
        await clock.sleep(2.5)
        assert ended.is_set()
        standing.cancel()
        await asyncio.wait([standing])

    run_virtually(main)


def test_who_can_not_know_that_its_writes_are_stored_stands_back_for_another() -> None:
    """It renews the Lease each time, and would lead nobody."""

    async def main(clock: LoopClock) -> None:
        kube = MemoryKube()
        client = kube.peer()
        for method in ("create", *["update"] * 100):
            client.fail_next(method, KubeUnavailableError("lost"), after=True)
        one, other = election(client, clock, "one"), election(kube, clock, "other")
        standing = [asyncio.create_task(one.run(_for_ever))]
        await clock.sleep(5)
        standing.append(asyncio.create_task(other.run(_for_ever)))
        await clock.sleep(60)
        assert other.leading
        assert not one.leading

    run_virtually(main)


@pytest.mark.parametrize("error", ERRORS, ids=lambda make: type(make()).__name__)
def test_who_is_refused_takes_the_lease_as_soon_as_it_may(error: Callable[[], KubeError]) -> None:
    async def main(clock: LoopClock) -> None:
        kube = MemoryKube()
        over = kube.refuse(InjectedRefusal(error(), "create", LEASES))
        one = election(kube, clock, "one")
        task = asyncio.create_task(one.run(_for_ever))
        await clock.sleep(31)
        assert not one.leading
        over()
        stands_back = isinstance(error(), KubeUnavailableError)
        await clock.sleep(TIMING.retry_s + (TIMING.lease_s if stands_back else 0))
        assert one.leading
        assert not task.done()

    run_virtually(main)


async def _for_ever() -> None:
    await asyncio.Event().wait()
