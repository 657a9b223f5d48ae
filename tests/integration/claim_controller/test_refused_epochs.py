"""One claim that can't be voided holds up no term, no other pool, and its own pool not for long."""

from collections.abc import Callable

import pytest
from tests.integration.claim_controller.kubernetes import POOL
from tests.integration.claim_controller.test_refused_writes import (
    WHOLE,
    answers,
    node_of,
)
from tests.integration.claim_controller.virtual import VirtualWorld, in_virtual_time

from dray.api.claims import first_attempt, last_attempt_before
from dray.api.names import CLAIM_REFERENCE as REFERENCE
from dray.kube.convert import claim_from
from dray.kube.memory_refusals import InjectedRefusal
from dray.kube.ports import CLAIMS, KubeError, KubeUnavailableError, RefusedError
from dray.messages.decisions import log_stream

OTHER = "other-pool"


async def other_pool(world: VirtualWorld) -> None:
    await world.pool(OTHER, dedicated=True)
    await world.node("node-2", OTHER)
    await world.until(
        lambda: OTHER in world.running[0].controller.term.followers.executions,  # type: ignore[union-attr]
        "its log is read",
    )


def refuse(world: VirtualWorld, pod: str, answer: KubeError) -> Callable[[], None]:
    """From now on no patch of the pod's claim is stored."""
    return world.kube.refuse(InjectedRefusal(answer, "patch", CLAIMS, name=f"{pod}-{REFERENCE}"))


@answers
@pytest.mark.parametrize("restarts", [False, True], ids=["one term", "another term"])
def test_a_deleted_pool_with_a_claim_that_cannot_be_written_stops_no_other_pool(
    answer: Callable[[], KubeError], restarts: bool
) -> None:
    async def scenario(world: VirtualWorld) -> None:
        await other_pool(world)
        await world.pod("victim")
        await world.claim_of("victim")
        refuse(world, "victim", answer())
        world.allocate()
        await world.lose_pool(POOL)
        if restarts:
            await world.running[0].stop()
            await world.start("two")
        await world.clock.sleep(1)
        terms = [running.controller.term for running in world.running]
        assert terms[-1] is not None
        assert terms[-1].ready

        await world.pod("honest", shape=world.shape("10", "1Gi", OTHER), pool=OTHER)
        await world.bound("honest", within_s=10)

        async def closed() -> bool:
            fact = await world.newest("domain", "")
            facts = (await world.facts()).get("domain", [])
            return fact is not None and any(
                one["domain"] == POOL and one.get("deleted") for one in facts
            )

        await world.until(closed, "the deleted pool's domain is closed", 60)
        assert [running.controller.term for running in world.running] == terms
        # The pool is made again: its pods are placed, but for the one whose claim can't be written.
        await world.pool(POOL, dedicated=True)
        await world.pod("again", shape=world.shape("10", "1Gi"))
        await world.bound("again", within_s=60)
        await world.clock.sleep(120)
        assert not node_of(world, "victim")

    in_virtual_time(scenario)


@answers
def test_a_lost_bus_and_a_claim_that_cannot_be_written_cost_one_term(
    answer: Callable[[], KubeError],
) -> None:
    async def scenario(world: VirtualWorld) -> None:
        await other_pool(world)
        await world.pod("victim")
        claim = await world.claim_of("victim")
        permit = refuse(world, "victim", answer())
        first = world.running[0].controller.term
        world.bus.server.lose_everything()

        await world.until(
            lambda: world.running[0].controller.term is not first, "another term begins", 10
        )
        term = world.running[0].controller.term
        assert term is not None
        await world.until(lambda: term.ready, "it is ready", 10)
        for pool, within_s in ((OTHER, 10), (POOL, 40)):
            await world.until(
                lambda pool=pool: world.bus.state(log_stream(pool, 2)), f"a log of {pool}", within_s
            )
        assert world.running[0].controller.term is term

        fact = await world.newest("claim", claim)
        assert fact["given_up"]["attempt"] == last_attempt_before(2)
        assert fact["claim"]["void"] == last_attempt_before(2)
        assert str(answer()) in fact["given_up"]["message"]
        assert not claim_from(await world.claim("victim")).void

        permit()
        world.allocate()
        await world.bound("victim", within_s=400)
        assert claim_from(await world.claim("victim")).void >= last_attempt_before(2)

    in_virtual_time(scenario)


def test_a_pool_is_not_closed_while_a_claim_of_its_may_still_be_committed() -> None:
    """The devices would be free to the next pool of their node. All other pools go on."""

    async def scenario(world: VirtualWorld) -> None:
        await other_pool(world)
        world.allocate()
        refused = RefusedError("policy.example.com denied the request", 403)
        name = f"victim-{REFERENCE}"
        world.kube.refuse(
            InjectedRefusal(refused, "patch", CLAIMS, name=name, subresource="status", delay_s=5)
        )
        await world.pod("victim")
        await world.claim_of("victim")

        async def marked() -> bool:
            return claim_from(await world.claim("victim")).decision > 0

        await world.until(marked, "it is marked")
        permit = refuse(world, "victim", refused)
        await world.lose_pool(POOL)
        term = world.running[0].controller.term
        assert term is not None
        await world.clock.sleep(120)
        assert term.epochs.closing == {POOL}
        await world.pod("honest", shape=world.shape("10", "1Gi", OTHER), pool=OTHER)
        await world.bound("honest", within_s=10)

        permit()
        await world.until(lambda: not term.epochs.closing, "it is closed", 400)
        assert world.running[0].controller.term is term

    in_virtual_time(scenario)


def test_what_an_earlier_term_gave_up_no_later_one_carries_out() -> None:
    """Its devices were released then, and may belong to another pod now."""

    async def scenario(world: VirtualWorld) -> None:
        await world.pod("victim")
        name = await world.claim_of("victim")
        permit = refuse(world, "victim", RefusedError("policy.example.com denied the request", 403))
        await world.decide(await world.decision("victim"))

        async def is_given_up() -> bool:
            fact = await world.newest("claim", name)
            return bool(fact and fact.get("given_up"))

        await world.until(is_given_up, "it is given up")
        await world.running[0].stop()
        permit()
        await world.ready(await world.start("two"))
        await world.clock.sleep(60)
        claim = claim_from(await world.claim("victim"))
        assert claim.allocation is None
        assert claim.void == first_attempt(1)

    in_virtual_time(scenario)


def test_devices_that_only_a_lost_log_reserved_go_to_others_once_no_write_can_take_them() -> None:
    """A commit of unknown outcome is over when the server has given it up, also where the claim
    never changes again."""

    async def scenario(world: VirtualWorld) -> None:
        fails = KubeUnavailableError("etcdserver: request timed out")
        claim = f"victim-{REFERENCE}"
        world.kube.refuse(InjectedRefusal(fails, "patch", CLAIMS, name=claim, subresource="status"))
        world.allocate()
        await world.pod("victim", shape=world.shape(*WHOLE))
        await world.claim_of("victim")

        async def marked() -> bool:
            return claim_from(await world.claim("victim")).decision > 0

        await world.until(marked, "it is marked")
        refuse(world, "victim", fails)
        world.bus.server.delete(log_stream(POOL, 1))
        await world.until(lambda: world.bus.state(log_stream(POOL, 2)), "the new log", 60)
        for number in (1, 2):
            await world.pod(f"honest-{number}", shape=world.shape(*WHOLE))
            await world.bound(f"honest-{number}", within_s=60)
        term = world.running[0].controller.term
        assert term is not None
        assert term.executor.double_allocations_prevented == 0

    in_virtual_time(scenario)
