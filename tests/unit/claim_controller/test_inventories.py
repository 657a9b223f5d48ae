"""What a node-agent reports becomes a fact of its own node, within the bounds of its slices."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.devices import Device, ResourceSlice
from dray.api.names import DRIVER, GPU_LABEL
from dray.bus.memory import MemoryBus
from dray.bus.ports import BusUnavailableError, Request
from dray.bus.topology import FACTS_STREAM, STREAMS
from dray.kube.ports import NODES, SLICES, Changed, Deleted, KubeError, KubeUnavailableError
from dray.messages.base import decode
from dray.messages.facts import InventoryObserved
from dray.messages.rpc import Inventory, InventoryReply
from dray.runtime.clock import ManualClock
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.inventories.decisions import (
    AHEAD,
    HIGHEST_GENERATION,
    doubt,
    forgery,
    next_fact,
)
from dray_claim_controller.inventories.server import InventoryServer
from dray_claim_controller.publication.publisher import NodeMoves, Publisher

GENERATIONS = st.integers(0, 40)
UNHEALTHY = st.lists(st.sampled_from(["gpu-0", "gpu-1"]), unique=True).map(tuple)


def report(
    generation: int = 3,
    *unhealthy: str,
    node: str = "n.1",
    driver: str = DRIVER,
    devices: int = 0,
):
    return Inventory(
        node=node, driver=driver, generation=generation, devices=devices, unhealthy=unhealthy
    )


def slice_of(generation: int, *devices: str, node: str = "n.1", name: str = "s") -> ResourceSlice:
    return ResourceSlice(
        name=name,
        uid="u",
        driver=DRIVER,
        pool="n.1",
        generation=generation,
        slice_count=1,
        node=node,
        devices=tuple(Device(name=one) for one in devices),
    )


def fact(revision: int, *unhealthy: str, deleted: bool = False) -> InventoryObserved:
    return InventoryObserved(
        revision=revision, node="n.1", driver=DRIVER, unhealthy=unhealthy, deleted=deleted
    )


def test_an_agent_reports_under_its_own_name() -> None:
    assert forgery(report(), subject_node="n_1", user="n.1") is None


@pytest.mark.parametrize(
    ("subject_node", "user"),
    [
        ("n_2", "n.1"),  # an answer that the server sends to another node's subject
        ("n_1", ""),  # or one of which it says nothing
        ("n_1", "n.2"),
        ("n_2", "n.2"),  # another node's agent, about this one
        ("n.1", "n.1"),
    ],
)
def test_what_comes_under_another_name_is_refused(subject_node: str, user: str) -> None:
    assert forgery(report(), subject_node=subject_node, user=user)


def test_a_report_is_believed_within_what_the_slices_show() -> None:
    slices = [slice_of(3, "gpu-0"), slice_of(3, "gpu-1", name="t")]
    assert doubt(report(3, "gpu-1"), slices, node_exists=True) is None
    assert doubt(report(3 + AHEAD), slices, node_exists=True) is None


@pytest.mark.parametrize(
    ("asked", "slices", "exists", "why"),
    [
        (report(3 + AHEAD + 1), [slice_of(3)], True, "show 3"),
        (report(2**63 - 1), [slice_of(3)], True, "show 3"),
        (report(2**63 - 1), [slice_of(2**63 - 2)], True, str(HIGHEST_GENERATION)),
        (report(0), [slice_of(3)], True, "not between 1"),
        (report(-5), [slice_of(3)], True, "not between 1"),
        (report(AHEAD + 1), [], True, "show 0"),
        # Slices of the pool that another node has written count nothing.
        (report(500), [slice_of(500, node="n.2")], True, "show 0"),
        (report(3, "gpu-9"), [slice_of(3, "gpu-0")], True, "'gpu-9'"),
        (report(3, "gpu-0"), [slice_of(3, "gpu-0", node="n.2")], True, "in no ResourceSlice"),
        (report(3), [slice_of(3)], False, "no Node n.1"),
        (report(3, driver="other"), [slice_of(3)], True, "'other'"),
    ],
)
def test_what_the_slices_do_not_show_is_doubted(asked, slices, exists, why) -> None:
    seen = doubt(asked, slices, node_exists=exists)
    assert seen is not None
    assert why in seen


def test_the_first_report_is_published_as_it_is() -> None:
    assert next_fact(report(3, "gpu-1", "gpu-0", "gpu-1"), None) == fact(3, "gpu-0", "gpu-1")


def test_a_higher_generation_is_published_though_it_says_the_same() -> None:
    assert next_fact(report(4), fact(3)) == fact(4)


def test_what_is_known_is_not_published_again() -> None:
    assert next_fact(report(3, "gpu-0"), fact(3, "gpu-0")) is None


def test_an_older_report_changes_nothing() -> None:
    assert next_fact(report(2, "gpu-0"), fact(3)) is None


def test_a_node_that_is_back_is_published_above_its_tombstone() -> None:
    assert next_fact(report(2), fact(7, deleted=True)) == fact(8)


def test_other_devices_at_the_same_generation_are_published_above_it() -> None:
    assert next_fact(report(3, "gpu-0"), fact(3)) == fact(4, "gpu-0")


@given(st.lists(st.tuples(GENERATIONS, UNHEALTHY, st.booleans()), max_size=20))
def test_facts_never_go_back_and_a_repeated_report_is_published_once(steps) -> None:
    known: InventoryObserved | None = None
    for generation, unhealthy, dies in steps:
        asked = report(generation, *unhealthy)
        newer = next_fact(asked, known)
        if newer is not None:
            assert known is None or newer.revision > known.revision
            known = newer
        if known is not None and known.revision == generation:
            assert next_fact(asked, known) is None or known.deleted
        if dies and known is not None:
            known = msgspec.structs.replace(known, deleted=True, revision=known.revision + 1)


# --- the server -----------------------------------------------------------------------------


class Leader:
    """One that leads, with a node that publishes a slice of generation 3."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.clock = ManualClock()
        self.cache = ObjectCache()
        self.publisher = Publisher(
            self.bus,
            self.cache,
            self.clock,
            instance="one",
            node_moves=NodeMoves(left=lambda *_: 0, closing=tuple),
        )
        self.labelled: list[str] = []
        self.label_error: KubeError | None = None
        self.server = InventoryServer(
            self.bus, self.cache, self.publisher, self.clock, instance="one", label=self.label
        )

    async def label(self, node: str) -> None:
        if self.label_error is not None:
            raise self.label_error
        self.labelled.append(node)

    async def begin(self) -> None:
        for spec in STREAMS:
            await self.bus.ensure(spec)
        self.cache.apply(NODES, Changed({"metadata": {**METADATA, "name": "n.1", "uid": "n"}}))
        slices = {
            "metadata": {**METADATA, "name": "s", "uid": "s"},
            "spec": {
                "driver": DRIVER,
                "nodeName": "n.1",
                "pool": {"name": "n.1", "generation": 3, "resourceSliceCount": 1},
                "devices": [{"name": "gpu-0"}],
            },
        }
        self.cache.apply(SLICES, Changed(slices))
        state = await self.bus.state(FACTS_STREAM)
        assert state is not None
        await self.publisher.begin(state.created)

    async def ask(self, asked: Inventory | bytes, user: str = "n.1", subject: str = "n_1"):
        payload = asked if isinstance(asked, bytes) else msgspec.json.encode(asked)
        request = Request(f"dray.rpc.inventory.{subject}", payload, user)
        return msgspec.json.decode(await self.server.answer(request), type=InventoryReply)

    async def known(self) -> InventoryObserved | None:
        last = await self.bus.last(FACTS_STREAM, "dray.state.inventory.v1.n_1")
        return None if last is None else decode(last, InventoryObserved)


METADATA = {"resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z"}


@pytest.fixture
async def leader() -> Leader:
    made = Leader()
    await made.begin()
    return made


async def test_an_agents_report_becomes_a_fact(leader: Leader) -> None:
    assert await leader.ask(report(3, "gpu-0")) == InventoryReply(accepted=True, known_generation=3)
    assert await leader.known() == fact(3, "gpu-0")
    assert (await leader.ask(report(3, "gpu-0"))).accepted


async def test_a_node_that_reports_devices_is_labelled_once(leader: Leader) -> None:
    await leader.ask(report(3))
    assert leader.labelled == []

    await leader.ask(report(3, devices=1))
    assert leader.labelled == ["n.1"]

    labels = {"labels": {GPU_LABEL: "true"}}
    node = {"metadata": {**METADATA, **labels, "name": "n.1", "uid": "n", "resourceVersion": "6"}}
    leader.cache.apply(NODES, Changed(node))
    await leader.ask(report(3, devices=1))
    assert leader.labelled == ["n.1"]


async def test_a_report_is_repeated_while_its_node_can_not_be_labelled(leader: Leader) -> None:
    leader.label_error = KubeUnavailableError("away")
    reply = await leader.ask(report(3, devices=1))
    assert not reply.accepted
    assert "gpu-present of node n.1 can't be written: away" in reply.error

    leader.label_error = None
    assert (await leader.ask(report(3, devices=1))).accepted
    assert leader.labelled == ["n.1"]


async def test_an_agent_that_forgot_its_generation_gets_it(leader: Leader) -> None:
    await leader.ask(report(3))
    reply = await leader.ask(report(2))
    assert (reply.accepted, reply.known_generation, reply.error) == (False, 3, "")


@pytest.mark.parametrize(("user", "subject"), [("n.2", "n_1"), ("n.1", "n_2"), ("", "n_1")])
async def test_a_report_in_another_name_is_not_a_fact(leader: Leader, user, subject) -> None:
    reply = await leader.ask(report(3), user, subject)
    assert "may report only its own node" in reply.error
    assert await leader.known() is None


@pytest.mark.parametrize(
    "payload",
    [
        b'{"stream": "DRAY_EVENTS", "seq": 1}',  # what JetStream answers a publication
        b"",
        b"[]",
        b'{"node": {"name": "n.1"}, "driver": "d", "generation": 1}',
    ],
)
async def test_what_is_not_a_report_is_no_fact(leader: Leader, payload: bytes) -> None:
    assert "can't be read" in (await leader.ask(payload)).error
    assert await leader.known() is None


async def test_no_report_moves_a_generation_beyond_its_slices(leader: Leader) -> None:
    reply = await leader.ask(report(2**63 - 1))
    assert "its ResourceSlices show 3" in reply.error
    assert await leader.known() is None


async def test_a_report_whose_fact_is_too_large_for_the_bus_ends_nothing(leader: Leader) -> None:
    leader.bus.server.max_payload_bytes = 10
    assert "max_payload" in (await leader.ask(report(3))).error
    leader.bus.server.max_payload_bytes = 2**20
    assert (await leader.ask(report(3))).accepted


async def test_the_tombstone_of_a_node_names_no_devices(leader: Leader) -> None:
    """A report may be as large as a message can be, and its tombstone has more fields."""
    await leader.ask(report(3, "gpu-0"))
    leader.cache.apply(NODES, Deleted({"metadata": {**METADATA, "name": "n.1", "uid": "n"}}))
    await leader.publisher.flush()
    known = await leader.known()
    assert known is not None
    assert (known.deleted, known.unhealthy) == (True, ())


async def test_a_report_of_a_node_that_is_deleted_meanwhile_gets_a_tombstone(
    leader: Leader,
) -> None:
    async def it_goes() -> None:
        leader.bus.before.clear()
        leader.cache.apply(NODES, Deleted({"metadata": {**METADATA, "name": "n.1", "uid": "n"}}))
        await leader.publisher.flush()

    leader.bus.before["publish"] = it_goes
    await leader.ask(report(3))
    await leader.publisher.flush()
    known = await leader.known()
    assert known is not None
    assert known.deleted


async def test_the_next_leader_knows_what_was_reported(leader: Leader) -> None:
    await leader.ask(report(3, "gpu-0"))
    successor = Leader()
    successor.bus.server = leader.bus.server
    await successor.begin()
    assert (await successor.ask(report(2))).known_generation == 3


async def test_a_report_after_one_of_unknown_outcome_counts(leader: Leader) -> None:
    """The first one was stored, and its answer was lost: the next has to be above it."""
    await leader.ask(report(3))
    publish = leader.bus.publish

    async def stored_and_lost(message, *, fence=None):
        await publish(message, fence=fence)
        leader.bus.publish = publish
        raise BusUnavailableError("the answer was lost")

    leader.bus.publish = stored_and_lost
    with pytest.raises(BusUnavailableError):
        await leader.ask(report(3, "gpu-0"))
    assert (await leader.ask(report(3))).known_generation == 5
    assert await leader.known() == fact(5)


def test_a_node_that_has_withdrawn_its_slices_reports_from_where_it_was() -> None:
    assert doubt(report(700), [], node_exists=True)
    assert doubt(report(700), [], node_exists=True, known=699) is None
    assert doubt(report(700), [slice_of(3)], node_exists=True, known=699)
