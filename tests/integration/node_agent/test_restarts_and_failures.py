"""What goes wrong on nodes, one by one: restarts, crashes, late calls, lost disks."""

import asyncio
import json

import pytest

from dray.api.names import DRIVER
from dray.bus.topology import EVENTS_STREAM
from dray.kube.ports import CLAIMS, PODS, KubeUnavailableError
from dray.messages.base import decode, subject_prefix
from dray.messages.events import ClaimPrepared
from dray_sandbox.kubelet.claims import ClaimInfo, NotStartedError


async def running_pod(stand, *, index: int = 0):
    claim = await stand.make_claim("c", [await stand.device(index)])
    await stand.reserve("c", await stand.make_pod("p", {"gpu": "c"}))
    await stand.reaches("p", "Running")
    return claim["metadata"]["uid"]


def held(claim) -> ClaimInfo:
    metadata = claim["metadata"]
    return ClaimInfo(metadata["uid"], metadata["namespace"], metadata["name"], (DRIVER,))


async def test_both_restart_and_the_pod_still_ends_cleanly(stand):
    async with stand.agent(), stand.kubelet():
        uid = await running_pod(stand)
    assert stand.checkpoint()[uid]["phase"] == "PrepareCompleted"
    async with stand.agent(), stand.kubelet():
        assert await stand.phase("p") == "Running"
        await stand.kube.delete(PODS, "p", "default")
        await stand.is_gone("p")
    assert stand.cdi_files() == []
    assert stand.checkpoint() == {}


async def test_a_pod_deleted_while_the_kubelet_was_down_is_unprepared(stand):
    async with stand.agent():
        async with stand.kubelet():
            await running_pod(stand)
        await stand.kube.delete(PODS, "p", "default")
        async with stand.kubelet():
            await stand.is_gone("p")
        assert stand.cdi_files() == []


async def test_the_agent_restarts_while_the_kubelet_stays(stand, eventually):
    async with stand.kubelet() as kubelets:
        async with stand.agent():
            await running_pod(stand)
        plugins = kubelets.kubelets[0].plugins
        async with stand.agent():
            await plugins.registered(DRIVER)
            await stand.make_claim("d", [await stand.device(1)])
            await stand.reserve("d", await stand.make_pod("q", {"gpu": "d"}))
            await stand.reaches("q", "Running")
            assert len(stand.checkpoint()) == 2


async def test_cdi_files_lost_in_a_reboot_are_written_again(stand, eventually):
    async with stand.agent(), stand.kubelet():
        uid = await running_pod(stand)
        path = stand.group.cdi_dir / f"tensor-fusion.ai-gpu_{uid}.json"
        before = path.read_text()
    path.unlink()
    async with stand.agent():
        await eventually(path.exists)
        assert path.read_text() == before


async def test_prepare_is_idempotent(stand, eventually):
    async with stand.agent():
        claim = await stand.make_claim("c", [await stand.device()])
        plugin = await stand.plugin()
        first = await plugin.prepare([held(claim)])
        assert await plugin.prepare([held(claim)]) == first
        await plugin.close()


@pytest.mark.parametrize("name", ["1", "a.b-c.d", ".".join(["x" * 62] * 4)])
async def test_a_claim_of_any_name_is_prepared_and_reported_on_the_bus(stand, eventually, name):
    async with stand.agent():
        claim = await stand.make_claim(name, [await stand.device()])
        plugin = await stand.plugin()
        await plugin.prepare([held(claim)])
        uid = claim["metadata"]["uid"]
        assert stand.cdi_files() == [f"tensor-fusion.ai-gpu_{uid}.json"]
        subjects = [f"{subject_prefix(ClaimPrepared)}.>"]
        async for delivered in stand.bus.read(EVENTS_STREAM, subjects=subjects):
            assert decode(delivered, ClaimPrepared).name == name
            break
        await plugin.unprepare([held(claim)])
        assert stand.cdi_files() == []
        await plugin.close()


async def test_every_claim_of_a_batch_is_answered_and_one_failure_stays_alone(stand, eventually):
    async with stand.agent():
        good = await stand.make_claim("good", [await stand.device()])
        plugin = await stand.plugin()
        absent = ClaimInfo("no-such-uid", "default", "absent", (DRIVER,))
        with pytest.raises(NotStartedError, match="absent does not exist"):
            await plugin.prepare([held(good), absent])
        assert stand.cdi_files() == [f"tensor-fusion.ai-gpu_{good['metadata']['uid']}.json"]
        await plugin.close()


async def test_a_claim_created_again_under_its_name_is_not_prepared_as_the_old_one(
    stand, eventually
):
    async with stand.agent():
        old = await stand.make_claim("c", [await stand.device()])
        await stand.kube.delete(CLAIMS, "c", "default")
        await stand.make_claim("c", [await stand.device()])
        plugin = await stand.plugin()
        with pytest.raises(NotStartedError, match="it was recreated"):
            await plugin.prepare([held(old)])
        assert stand.checkpoint() == {}
        await plugin.close()


async def test_a_retry_that_arrives_after_unprepare_prepares_nothing(stand, eventually):
    async with stand.agent():
        claim = await stand.make_claim("c", [await stand.device()])
        plugin = await stand.plugin()
        await plugin.prepare([held(claim)])
        await plugin.unprepare([held(claim)])
        with pytest.raises(NotStartedError, match="a late retry"):
            await plugin.prepare([held(claim)])
        await stand.kube.delete(CLAIMS, "c", "default")
        with pytest.raises(NotStartedError, match="does not exist, or no longer"):
            await plugin.prepare([held(claim)])
        assert stand.cdi_files() == []
        await plugin.close()


async def test_unprepare_of_an_unknown_claim_succeeds(stand, eventually):
    async with stand.agent():
        await stand.slices()
        plugin = await stand.plugin()
        await plugin.unprepare([ClaimInfo("never-seen", "default", "c", (DRIVER,))])
        await plugin.close()


async def test_the_api_being_away_fails_the_call_and_the_next_one_succeeds(stand, eventually):
    async with stand.agent():
        claim = await stand.make_claim("c", [await stand.device()])
        plugin = await stand.plugin()

        async def away(*_):
            raise KubeUnavailableError("the API server is away")

        stand.kubes[-1].before["get"] = away
        with pytest.raises(NotStartedError, match="the API server is away"):
            await plugin.prepare([held(claim)])
        del stand.kubes[-1].before["get"]
        await plugin.prepare([held(claim)])
        await plugin.close()


async def test_an_agent_killed_while_preparing_leaves_nothing_behind(stand, eventually):
    """The checkpoint says PrepareStarted, the CDI file may be there: both go, a retry works."""
    async with stand.agent(), stand.kubelet():
        uid = await running_pod(stand)
    path = stand.group.state_dir / "checkpoint.json"
    _rewrite(path, lambda data: data["claims"][uid].update(phase="PrepareStarted"))
    async with stand.agent():
        plugin = await stand.plugin()
        assert stand.checkpoint() == {}
        assert stand.cdi_files() == []
        claim = await stand.kube.get(CLAIMS, "c", "default")
        await plugin.prepare([held(claim)])
        assert list(stand.checkpoint()) == [uid]
        await plugin.close()


@pytest.mark.parametrize("damage", ["truncated", "flipped", "newer"])
async def test_a_corrupt_checkpoint_is_kept_aside_and_rebuilt_from_the_api(
    stand, eventually, damage
):
    async with stand.agent(), stand.kubelet():
        await running_pod(stand)
        devices = [one["devices"] for one in stand.checkpoint().values()]
    path = stand.group.state_dir / "checkpoint.json"
    content = path.read_text()
    broken = {
        "truncated": content[: len(content) // 2],
        "flipped": content.replace("PrepareCompleted", "PrepareCompletEd"),
        "newer": content.replace('"version":1', '"version":99'),
    }[damage]
    path.write_text(broken)
    async with stand.agent():
        aside = path.parent / "checkpoint.json.corrupt-1"
        await eventually(lambda: aside.exists() and path.read_text() != broken)
        assert [one["devices"] for one in stand.checkpoint().values()] == devices
        assert aside.read_text() == broken
        assert len(stand.cdi_files()) == 1


async def test_readiness_says_why_the_claims_of_an_earlier_agent_are_not_restored(
    stand, eventually
):
    path = stand.group.state_dir / "checkpoint.json"
    path.mkdir(parents=True)
    async with stand.agent() as health:
        await eventually(lambda: "can't be restored" in (health._checks["kubelet"]() or ""))
        assert stand.sockets() == []
        path.rmdir()
        await eventually(lambda: health.ready)


async def test_a_checkpoint_with_fields_of_a_later_agent_is_read(stand, eventually):
    async with stand.agent(), stand.kubelet():
        uid = await running_pod(stand)
    path = stand.group.state_dir / "checkpoint.json"
    _rewrite(path, lambda data: data["claims"][uid].update(invented="later"))
    async with stand.agent():
        plugin = await stand.plugin()
        await plugin.close()
        assert list(stand.checkpoint()) == [uid]
        assert not list(path.parent.glob("*.corrupt-*"))


async def test_a_claim_that_vanished_without_unprepare_frees_its_card(stand, eventually):
    """The next claim on the GPU finds the dead holder, without waiting for the sweep."""
    async with stand.agent():
        device = await stand.device()
        lost = await stand.make_claim("lost", [device], tflops="300")
        plugin = await stand.plugin()
        await plugin.prepare([held(lost)])
        await stand.kube.delete(CLAIMS, "lost", "default")
        following = await stand.make_claim("following", [device], tflops="300")
        await plugin.prepare([held(following)])
        assert list(stand.checkpoint()) == [following["metadata"]["uid"]]
        assert len(stand.cdi_files()) == 1
        await plugin.close()


async def test_a_call_the_kubelet_gave_up_on_is_carried_to_its_end(stand, eventually):
    async with stand.agent():
        claim = await stand.make_claim("c", [await stand.device()])
        plugin = await stand.plugin()
        call = asyncio.create_task(plugin.prepare([held(claim)]))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await plugin.unprepare([held(claim)])
        await eventually(lambda: stand.cdi_files() == [] and stand.checkpoint() == {})
        await plugin.close()


def _rewrite(path, change) -> None:
    """Change the checkpoint's data and make its checksum right again."""
    import hashlib

    data = json.loads(path.read_text())["data"]
    change(data)
    raw = json.dumps(data)
    checksum = hashlib.sha256(raw.encode()).hexdigest()
    path.write_text(f'{{"version":1,"checksum":"sha256:{checksum}","data":{raw}}}')
