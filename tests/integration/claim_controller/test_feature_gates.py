"""What the API server keeps is asked again when another server may answer."""

from typing import Any

from dray.bus.topology import FACTS_STREAM
from dray.kube.memory import MemoryKube
from dray.kube.ports import CLAIMS, CLASSES, SLICES, KubeUnavailableError, RefusedError
from dray.messages.base import decode, subject_prefix
from dray.messages.facts import ClusterObserved
from dray_claim_controller.settings import Probing


class Server:
    """What all clients of one API server meet: its version, its gates, its moods."""

    def __init__(self) -> None:
        self.version = "v1.35.4"
        self.dropped: tuple[str, ...] = ("taints", "allowMultipleAllocations")
        self.refusal: Exception | None = None
        self.refused = 0
        self.asked: list[str] = []


class Client(MemoryKube):
    """A client of it."""

    server: Server

    async def version(self) -> str:
        self._raise_refusal()
        return self.server.version

    async def create(self, resource: Any, obj: Any, *args: Any, **more: Any) -> Any:
        if more.get("dry_run"):
            self._raise_refusal()
            self.server.asked.append(resource.plural)
        stored = await super().create(resource, obj, *args, **more)
        for device in stored["spec"].get("devices", ()) if resource == SLICES else ():
            for name in self.server.dropped:
                device.pop(name, None)
        return stored

    def _raise_refusal(self) -> None:
        if self.server.refusal is not None:
            self.server.refused += 1
            raise self.server.refusal


def client_of(world: Any, server: Server) -> Client:
    kube = Client(world.kube.store)
    kube.server = server
    return kube


async def published(world: Any) -> ClusterObserved | None:
    newest = await world.bus.last(FACTS_STREAM, subject_prefix(ClusterObserved))
    return decode(newest.payload, ClusterObserved) if newest else None


async def leading(world: Any, server: Server, **probing: float) -> Any:
    return await world.ready(
        await world.start(kube=client_of(world, server), probing=Probing(**probing))
    )


async def test_an_upgraded_server_is_asked_and_its_answer_published(world: Any) -> None:
    server = Server()
    await leading(world, server, look_every=0.01, ask_every=3600.0)
    before = await published(world)
    assert before is not None
    assert (before.device_taints, before.consumable_capacity) == (False, False)

    server.dropped, server.version = (), "v1.36.3"

    async def picked_up() -> bool:
        after = await published(world)
        return after is not None and after.device_taints and after.consumable_capacity

    await world.until(picked_up)
    after = await published(world)
    assert after is not None
    assert after.version == "v1.36.3"
    assert after.revision > before.revision


async def test_a_server_that_was_away_is_asked_though_its_version_is_the_same(world: Any) -> None:
    server = Server()
    await leading(world, server, look_every=0.01, ask_every=3600.0)
    server.refusal = KubeUnavailableError("restarting")
    await world.until(lambda: server.refused >= 2)
    # A server that has just started knows no roles yet.
    server.dropped, server.refusal = (), RefusedError("who are you?", 403)
    await world.until(lambda: server.refused >= 4)
    server.refusal = None

    async def picked_up() -> bool:
        after = await published(world)
        return after is not None and after.device_taints and after.prioritized_list

    await world.until(picked_up)


async def test_gates_that_are_switched_between_two_looks_are_found_in_time(world: Any) -> None:
    server = Server()
    await leading(world, server, look_every=0.01, ask_every=0.1)
    server.dropped = ()

    async def picked_up() -> bool:
        after = await published(world)
        return after is not None and after.device_taints

    await world.until(picked_up)


async def test_a_server_that_stays_itself_is_not_asked_again(world: Any) -> None:
    server = Server()
    running = await leading(world, server, look_every=0.005, ask_every=3600.0)
    asked, fact = len(server.asked), await published(world)
    looks = 0

    async def version() -> str:
        nonlocal looks
        looks += 1
        return server.version

    running.controller.term.feature_gates._kube.version = version
    await world.until(lambda: looks >= 3)
    assert len(server.asked) == asked
    assert await published(world) == fact


async def test_the_probe_asks_for_nothing_that_it_has_no_right_to(world: Any) -> None:
    server = Server()
    await leading(world, server)
    assert set(server.asked) == {CLAIMS.plural, SLICES.plural}
    assert CLASSES.plural not in server.asked
    seen = await published(world)
    assert seen is not None
    assert seen.extended_resources is None
