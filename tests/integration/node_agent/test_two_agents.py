"""Two agents on one node: a rolling update without a gap, and what killed agents leave."""

import asyncio
import socket

import pytest

from dray.api.names import DRIVER
from dray.kube.ports import SLICES
from dray_node_agent.app import FolderError, prepared_folders
from dray_node_agent.files.agent_locks import AgentLock, ForeignAgentError, LockHeldError
from dray_sandbox.kubelet.claims import ClaimInfo


def held(claim) -> ClaimInfo:
    metadata = claim["metadata"]
    return ClaimInfo(metadata["uid"], metadata["namespace"], metadata["name"], (DRIVER,))


async def test_pods_start_at_every_moment_of_a_rolling_update(stand, eventually):
    async with stand.kubelet() as kubelets:
        plugins = kubelets.kubelets[0].plugins
        async with stand.agent():
            await stand.make_claim("before", [await stand.device(0)])
            await stand.reserve("before", await stand.make_pod("before", {"gpu": "before"}))
            await stand.reaches("before", "Running")
            old = plugins.plugin(DRIVER).endpoint
            update = stand.agent()
            await update.__aenter__()
            await eventually(lambda: plugins.plugin(DRIVER).endpoint != old)
            await stand.make_claim("during", [await stand.device(1)])
            await stand.reserve("during", await stand.make_pod("during", {"gpu": "during"}))
            await stand.reaches("during", "Running")
        await stand.make_claim("after", [await stand.device(2)])
        await stand.reserve("after", await stand.make_pod("after", {"gpu": "after"}))
        await stand.reaches("after", "Running")
        assert len(stand.checkpoint()) == len(stand.cdi_files()) == 3
        events = [one["reason"] for one in await stand.events()]
        assert "FailedPrepareDynamicResources" not in events
        await update.__aexit__(None, None, None)


async def test_what_one_agent_prepared_the_other_one_knows(stand, eventually):
    async with stand.agent():
        first = await stand.plugin()
        claim = await stand.make_claim("c", [await stand.device()], tflops="300")
        async with stand.agent():
            await eventually(lambda: len(stand.sockets()) == 2)
            second = await stand.plugin()
            assert second.endpoint != first.endpoint
            answer = await first.prepare([held(claim)])
            assert await second.prepare([held(claim)]) == answer
            too_much = await stand.make_claim("d", [await stand.device()], tflops="300")
            with pytest.raises(Exception, match="would give out 600 of 312 virtual_tflops"):
                await second.prepare([held(too_much)])
            await second.unprepare([held(claim)])
            assert stand.cdi_files() == []
            assert stand.checkpoint() == {}
            await first.prepare([held(too_much)])
            assert list(stand.checkpoint()) == [too_much["metadata"]["uid"]]
        await first.close()
        await second.close()


async def test_many_calls_to_both_agents_at_once_lose_nothing(stand, eventually):
    async with stand.agent(), stand.agent():
        await eventually(lambda: len(stand.sockets()) == 2)
        first, second = [await stand.plugin(path=path) for path in stand.sockets()]
        device = await stand.device()
        claims = [
            await stand.make_claim(f"c{n}", [device], tflops="1", vram="1Gi") for n in range(20)
        ]
        calls = [
            (first if n % 2 else second).prepare([held(claim)]) for n, claim in enumerate(claims)
        ]
        await asyncio.gather(*calls)
        uids = sorted(claim["metadata"]["uid"] for claim in claims)
        assert sorted(stand.checkpoint()) == uids
        assert len(stand.cdi_files()) == 20
        gone = [
            (second if n % 2 else first).unprepare([held(claim)])
            for n, claim in enumerate(claims[:15])
        ]
        await asyncio.gather(*gone)
        assert len(stand.checkpoint()) == len(stand.cdi_files()) == 5
        await first.close()
        await second.close()


async def test_one_agent_publishes_and_the_other_one_takes_over(stand, eventually):
    old = stand.agent()
    await old.__aenter__()
    before = (await eventually(stand.slices))[0]
    async with stand.agent() as health:
        await eventually(lambda: health.ready)
        await stand.kube.delete(SLICES, before["metadata"]["name"])
        (again,) = await eventually(stand.slices)
        assert again["spec"]["pool"]["generation"] == before["spec"]["pool"]["generation"] + 1
        await old.__aexit__(None, None, None)
        await stand.tell_node(pool="after")

        async def follows() -> bool:
            (one,) = await stand.slices()
            return one["spec"]["devices"][0]["attributes"]["pool_name"]["string"] == "after"

        await eventually(follows)


async def test_files_of_no_claim_are_removed_by_the_sweep(stand, eventually):
    async with stand.agent():
        claim = await stand.make_claim("c", [await stand.device()])
        plugin = await stand.plugin()
        await plugin.prepare([held(claim)])
        left = stand.group.cdi_dir / "tensor-fusion.ai-gpu_1234.json"
        left.write_text("{}")
        foreign = stand.group.cdi_dir / "nvidia.json"
        foreign.write_text("{}")
        await plugin.close()
    async with stand.agent():
        await eventually(lambda: not left.exists())
        assert foreign.exists()
        assert len(stand.cdi_files()) == 2


async def test_devices_are_offered_only_once_the_kubelet_has_registered_the_plugin(
    stand, eventually
):
    async with stand.agent(is_registered=False) as health:
        await eventually(stand.sockets)
        assert not health.ready
        assert await stand.slices() == []
        await (await stand.plugin()).close()
        await eventually(stand.slices)
        await eventually(lambda: health.ready)


def test_an_agent_with_another_state_folder_is_refused(stand):
    group = stand.group
    other = group.model_copy(update={"state_dir": stand.folder / "other"})
    with (
        prepared_folders(group),
        prepared_folders(group),
        pytest.raises(ForeignAgentError, match=r"with another state folder than .*/other"),
        prepared_folders(other),
    ):
        raise AssertionError("it got in")
    with prepared_folders(other):
        pass


def test_a_folder_that_can_not_be_used_is_named_with_its_setting(stand):
    (stand.folder / "s").write_text("a file")
    with pytest.raises(FolderError, match="DRAY_NODE__STATE_DIR"), prepared_folders(stand.group):
        pass


async def test_sockets_of_killed_agents_and_earlier_releases_are_removed(stand, eventually):
    group = stand.group
    paths = [
        group.registry_dir / f"{DRIVER}-reg.sock",
        group.registry_dir / f"{DRIVER}-01234567-reg.sock",
        group.plugins_dir / DRIVER / "dra.sock",
    ]
    foreign = group.registry_dir / "other.example-reg.sock"
    for path in (*paths, foreign):
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))
    (group.registry_dir / f"{DRIVER}-notes-reg.sock").write_text("no socket")
    async with stand.agent(), stand.kubelet() as kubelets:
        await eventually(stand.slices)
        with prepared_folders(group):  # not alone
            assert len(stand.sockets()) == 2
        await kubelets.kubelets[0].plugins.registered(DRIVER)
    with prepared_folders(group):
        assert stand.sockets() == [foreign]
        assert not any(path.exists() for path in paths)


async def test_a_lock_that_another_agent_keeps_is_an_error_that_names_it(folder):
    lock = AgentLock(folder / "l")
    async with lock.held():
        with pytest.raises(LockHeldError, match="is a stopped one still on this node"):
            async with lock.held(within_s=0.01):
                raise AssertionError("both have it")
    async with lock.held(within_s=0.0) as again:
        assert again.raise_counter() == again.counter == 1
