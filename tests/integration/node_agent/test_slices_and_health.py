"""What a node says of itself: slices to Kubernetes, health to the bus, and when either is lost."""

import asyncio
from copy import deepcopy

import msgspec

from dray.api.errors import PermanentError
from dray.api.names import DRIVER
from dray.bus.memory import MemoryBus
from dray.bus.ports import StreamMissingError
from dray.bus.topology import FACTS_STREAM, STREAMS, USAGE_STREAM
from dray.kube.memory import MemoryKube
from dray.kube.ports import PODS, SLICES
from dray.messages.base import decode, encode, subject_of, subject_prefix
from dray.messages.facts import ClusterObserved, InventoryObserved
from dray.messages.rpc import Inventory
from dray.messages.usage import GpusUsed
from dray_node_agent import node_state
from dray_node_agent.decisions.gpus import GpuProcess, GpuUsage
from dray_node_agent.gpus.simulated_gpus import SimulatedGpus
from dray_node_agent.node_state import NodeReporter
from dray_sandbox.kubelet.claims import ClaimInfo


async def test_slices_follow_pool_health_and_repair(stand, eventually):
    await stand.tell_node(pool="pool-a")
    async with stand.agent():

        async def gpu() -> dict:
            slices = await stand.slices()
            return slices[0]["spec"]["devices"][0] if slices else {}

        async def in_pool(pool: str) -> bool:
            return (await gpu()).get("attributes", {}).get("pool_name") == {"string": pool}

        await eventually(lambda: in_pool("pool-a"))
        generation = (await stand.slices())[0]["spec"]["pool"]["generation"]
        await stand.tell_node(pool="pool-b", owner="kube-scheduler", tflops_ratio="1.5")
        await eventually(lambda: in_pool("pool-b"))
        assert "taints" not in await gpu()
        assert (await gpu())["capacity"]["virtual_tflops"]["value"] == "468"
        assert (await stand.slices())[0]["spec"]["pool"]["generation"] > generation

        (stand.group.state_dir / "unhealthy").write_text("0 xid 79\n")

        async def tainted() -> bool:
            return bool((await gpu()).get("taints"))

        await eventually(tainted)
        assert (await gpu())["taints"][0]["key"] == "tensor-fusion.ai/unhealthy"
        (stand.group.state_dir / "unhealthy").unlink()

        async def well() -> bool:
            return not await tainted()

        await eventually(well)

        await stand.kube.delete(SLICES, (await stand.slices())[0]["metadata"]["name"])
        await eventually(lambda: in_pool("pool-b"))


async def test_a_cordoned_node_has_slices_as_long_as_a_claim_is_prepared(stand, eventually):
    await stand.tell_node()
    async with stand.agent(), stand.kubelet():
        await stand.make_claim("c", [await stand.device(0)])
        pod = await stand.make_pod("p", {"gpu": "c"})
        await stand.reserve("c", pod)
        await stand.reaches("p", "Running")
        generation = (await stand.slices())[0]["spec"]["pool"]["generation"]

        await stand.tell_node(unschedulable=True, pool="pool-b")

        async def is_published_again() -> bool:
            return (await stand.slices())[0]["spec"]["pool"]["generation"] > generation

        await eventually(is_published_again)
        await stand.kube.delete(PODS, "p", "default")

        async def has_none() -> bool:
            return not await stand.slices()

        await eventually(has_none)
        await stand.tell_node()
        await eventually(stand.slices)


async def test_slices_are_published_again_when_the_server_was_upgraded(
    stand, eventually, monkeypatch
):
    upgraded, offered = False, 0

    def keeping_taints_once_upgraded(inner):
        async def write(self, resource, obj, *args, **more):
            nonlocal offered
            if resource == SLICES and not upgraded:
                offered += 1
                obj = deepcopy(obj)
                for device in obj["spec"].get("devices", ()):
                    device.pop("taints", None)
            return await inner(self, resource, obj, *args, **more)

        return write

    for method in ("create", "update"):
        kept = keeping_taints_once_upgraded(getattr(MemoryKube, method))
        monkeypatch.setattr(MemoryKube, method, kept)
    await stand.tell_node(pool="pool-a")
    server = ClusterObserved(revision=1, device_taints=False)
    await stand.bus.publish(encode(server, source="test"))
    async with stand.agent():

        async def gpu() -> dict:
            slices = await stand.slices()
            return slices[0]["spec"]["devices"][0] if slices else {}

        async def in_pool() -> bool:
            return "pool_name" in (await gpu()).get("attributes", {})

        async def taints() -> list[dict]:
            return (await gpu()).get("taints", [])

        await eventually(in_pool)
        offered_before = offered
        await asyncio.sleep(3 * stand.group.resync)
        assert (await taints(), offered) == ([], offered_before)
        upgraded = True
        server = msgspec.structs.replace(server, revision=2, device_taints=True)
        await stand.bus.publish(encode(server, source="test"))
        await eventually(taints)


async def test_the_pool_is_remembered_when_the_bus_is_away_at_the_start(stand, eventually):
    await stand.tell_node(pool="pool-a")
    async with stand.agent():
        await eventually(stand.slices)
    generation = (await stand.slices())[0]["spec"]["pool"]["generation"]
    stand.bus.server.lose_everything()
    async with stand.agent() as health:
        await eventually(lambda: health.ready)
        slices = await stand.slices()
        assert slices[0]["spec"]["pool"]["generation"] == generation
        attributes = slices[0]["spec"]["devices"][0]["attributes"]
        assert attributes["pool_name"] == {"string": "pool-a"}


async def test_health_is_published_and_again_when_its_stream_was_lost(stand, eventually):
    (stand.group.state_dir).mkdir()
    (stand.group.state_dir / "unhealthy").write_text("1 xid 79\n")

    async def is_reported() -> bool:
        try:
            async with asyncio.timeout(0.5):
                async for delivered in stand.bus.read(FACTS_STREAM):
                    if delivered.subject.startswith(subject_prefix(InventoryObserved)):
                        return decode(delivered, InventoryObserved).unhealthy == (unhealthy,)
        except (TimeoutError, StreamMissingError):
            pass
        return False

    async with stand.agent():
        unhealthy = await stand.device(1)
        await eventually(is_reported)
        stand.bus.server.lose_everything()
        for stream in STREAMS:
            await stand.bus.ensure(stream)
        await eventually(is_reported)


async def test_claims_that_were_prepared_are_reported_until_the_plugin_is_registered_again(
    stand, eventually, monkeypatch
):
    """By then the kubelet may have forgotten the answer."""
    reports, take = list[Inventory](), stand._take

    async def noting(request):
        reports.append(msgspec.json.decode(request.payload, type=Inventory))
        return await take(request)

    monkeypatch.setattr(stand, "_take", noting)
    async with stand.agent():
        held = []
        for name in ("a", "b"):
            claim = await stand.make_claim(name, [await stand.device()])
            held.append(ClaimInfo(claim["metadata"]["uid"], "default", name, (DRIVER,)))
        uids = {one.uid for one in held}
        plugin = await stand.plugin()
        await plugin.prepare(held)
        await eventually(lambda: {*reports[-1].prepared} == uids)
        await (await stand.plugin()).close()
        await eventually(lambda: reports[-1].prepared == ())
        await plugin.close()


async def test_generations_grow_even_when_disk_and_slices_are_lost(stand, eventually):
    """The last health fact stays on the bus; a lower generation would never replace it."""
    fact = InventoryObserved(revision=41, node="n1", driver=DRIVER, unhealthy=("gpu-x",))
    await stand.bus.publish(encode(fact, source="an earlier agent"))
    async with stand.agent():

        async def grown() -> bool:
            slices = await stand.slices()
            return bool(slices) and slices[0]["spec"]["pool"]["generation"] == 42

        await eventually(grown)


async def health_of(stand) -> InventoryObserved | None:
    """What the bus says of the node's GPUs."""
    stated = InventoryObserved(revision=0, node="n1", driver=DRIVER)
    last = await stand.bus.last(FACTS_STREAM, subject_of(stated))
    return None if last is None else decode(last, InventoryObserved)


async def test_an_unhealthy_gpu_of_a_drained_node_is_in_no_report(stand, eventually):
    """Nodes are drained because of it, and reports about devices in no slice are refused."""
    stand.group.state_dir.mkdir()
    (stand.group.state_dir / "unhealthy").write_text("1 xid 79\n")
    await stand.tell_node(unschedulable=True)
    async with stand.agent():
        health = await eventually(lambda: health_of(stand))
        assert not await stand.slices()
        assert health.unhealthy == ()


async def test_a_report_that_was_long_on_its_way_does_not_come_last(stand):
    """Sick was sent and not answered, well was sent after it; then sick arrives."""
    late, soon = stand.bus.peer("n1"), stand.bus.peer("n1")
    slow, fast = (NodeReporter(bus, "n1", "test") for bus in (late, soon))
    heard: list[int] = []
    slow.on_generation = heard.append
    loops = [
        asyncio.create_task(loop)
        for loop in (stand.lead(), slow.report_inventory(), fast.report_inventory())
    ]

    async def meanwhile() -> None:
        late.before.clear()
        fast.inventory(8, 8, ())
        await until_reported(8)

    async def until_reported(generation: int) -> None:
        async with asyncio.timeout(60):
            while (stated := await health_of(stand)) is None or stated.revision != generation:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    late.before["request"] = meanwhile
    slow.inventory(7, 8, ("gpu-0",))
    async with asyncio.timeout(60):
        while not heard:  # noqa: ASYNC110 - the answer has no event of its own
            await asyncio.sleep(0.001)
    assert heard == [8]
    assert (await health_of(stand)).unhealthy == ()
    slow.inventory(9, 8, ("gpu-1",))
    await until_reported(9)
    for loop in loops:
        loop.cancel()


async def test_a_report_is_repeated_until_there_is_a_leader(stand):
    reporter = NodeReporter(stand.bus.peer("n1"), "n1", "test")
    loop = asyncio.create_task(reporter.report_inventory())
    reporter.inventory(3, 8, ("gpu-0",))
    await asyncio.sleep(0)
    assert await health_of(stand) is None
    leading = asyncio.create_task(stand.lead())
    async with asyncio.timeout(60):
        while await health_of(stand) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    for task in (loop, leading):
        task.cancel()


async def test_health_is_published_again_when_a_deleted_node_is_back(stand, eventually):
    await stand.tell_node()
    async with stand.agent():

        async def is_reported() -> bool:
            stated = await health_of(stand)
            return stated is not None and not stated.deleted

        await eventually(is_reported)
        await stand.tell_node(deleted=True)
        before = await health_of(stand)
        tombstone = msgspec.structs.replace(before, deleted=True, revision=before.revision + 1)
        await stand.bus.publish(encode(tombstone, source="test"))
        await stand.tell_node()
        await eventually(is_reported)
        assert (await health_of(stand)).revision > tombstone.revision


async def test_readiness_names_what_is_missing(stand, eventually):
    async with stand.agent() as health:
        assert not health.ready
        await eventually(lambda: health.ready)
        stand.buses[-1].disconnect()
        assert not health.ready


async def test_gpus_that_can_not_be_read_are_a_sentence_and_the_agent_goes_on(stand, eventually):
    async with stand.agent() as health:
        await eventually(lambda: health.ready)
        file = stand.group.state_dir / "unhealthy"
        file.write_bytes(b"0 xid-\xff\n")
        await eventually(lambda: "could not read the GPUs" in (health._checks["gpus"]() or ""))
        file.write_text("0 xid-79\n")
        await eventually(lambda: health.ready)

        async def is_tainted() -> bool:
            (one,) = await stand.slices()
            taints = one["spec"]["devices"][0].get("taints") or ()
            return any(taint["value"] == "xid-79" for taint in taints)

        await eventually(is_tainted)


async def test_processes_without_a_claim_show_once_they_stay(stand, eventually, monkeypatch):
    processes = (GpuProcess(7),)

    def read_usage(self) -> tuple[GpuUsage, ...]:
        return tuple(GpuUsage(gpu.uuid, processes=processes) for gpu in self.read().gpus)

    monkeypatch.setattr(SimulatedGpus, "read_usage", read_usage)
    await stand.tell_node(pool="pool-a")
    async with stand.agent(), stand.kubelet():
        device = await stand.device()
        await stand.make_claim("c", [device])
        await stand.reserve("c", await stand.make_pod("p", {"gpu": "c"}))
        await stand.reaches("p", "Running")

        async def used_by() -> dict[str, str]:
            (published,) = await stand.slices()
            return {
                one["name"]: one["attributes"]["used_by"]["string"]
                for one in published["spec"]["devices"]
            }

        async def shown() -> bool:
            return set((await used_by()).values()) == {"", "processes"}

        await eventually(shown)
        assert [name for name, user in (await used_by()).items() if not user] == [device]
        processes = ()

        async def gone() -> bool:
            return set((await used_by()).values()) == {""}

        await eventually(gone)


async def test_the_use_of_gpus_is_on_the_bus(stand, eventually):
    await stand.tell_node()
    subject = f"{subject_prefix(GpusUsed)}.{stand.node}"

    async def reported():
        return await stand.bus.last(USAGE_STREAM, subject)

    async with stand.agent():
        used = decode(await eventually(reported), GpusUsed)
    assert (used.node, len(used.gpus)) == (stand.node, 4)
    assert used.gpus[0].memory_used_bytes == 0


async def test_a_bus_of_an_earlier_release_that_forbids_the_report_of_use_ends_no_agent(
    stand, eventually, monkeypatch
):
    """In an upgrade the claim-controller that says what a node may publish can be the old one."""
    is_upgraded, refused = False, 0
    publish = MemoryBus.publish

    async def as_allowed(self, message, **more):
        nonlocal refused
        if message.subject.startswith(subject_prefix(GpusUsed)) and not is_upgraded:
            refused += 1
            raise PermanentError(f"this user may not publish {message.subject}")
        return await publish(self, message, **more)

    monkeypatch.setattr(MemoryBus, "publish", as_allowed)
    monkeypatch.setattr(node_state, "USAGE_EVERY_S", 0.01)
    reporter = NodeReporter(stand.bus, stand.node, "test")
    loop = asyncio.create_task(reporter.report_usage(lambda: (GpuUsage("GPU-1"),)))
    try:
        await eventually(lambda: refused > 1 or loop.done())
        assert not loop.done()
        is_upgraded = True
        subject = f"{subject_prefix(GpusUsed)}.{stand.node}"
        await eventually(lambda: stand.bus.last(USAGE_STREAM, subject))
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
