"""What a real kubelet does with plugins and failed preparations, and the stand-in with it."""

from dray.api.names import DRIVER
from dray.kube.ports import PODS
from dray_sandbox.kubelet.timings import KubeletTimings

HOUR_S = 3600.0
TRIES_NEVER = KubeletTimings(registration_s=0.02, resync_s=HOUR_S)


async def waiting_pod(stand, eventually):
    """A pod whose preparation has failed: no plugin is registered."""
    await stand.make_claim("c", [f"gpu-{'0' * 8}"])
    await stand.reserve("c", await stand.make_pod("p", {"gpu": "c"}))

    async def is_reported() -> bool:
        return any(
            f"driver {DRIVER} is not registered" in e["message"] for e in await stand.events()
        )

    await eventually(is_reported)


async def test_a_failed_preparation_is_tried_again_when_the_pod_changes_and_not_before(
    stand, eventually
):
    tried = []
    async with stand.kubelet(TRIES_NEVER) as kubelets:
        plugins = kubelets.kubelets[0].plugins
        await waiting_pod(stand, eventually)
        async with stand.agent():
            await plugins.registered(DRIVER)
            plugin = plugins.plugin(DRIVER)
            prepare = plugin.prepare

            async def counted(claims):
                tried.append(claims)
                return await prepare(claims)

            plugin.prepare = counted
            status = {"status": {"conditions": [{"type": "Example", "status": "True"}]}}
            await stand.kube.patch(PODS, "p", status, "default", subresource="status")
            other = await stand.make_claim("d", [await stand.device()])
            await stand.reserve("d", await stand.make_pod("q", {"gpu": "d"}))
            await stand.reaches("q", "Running")
            assert [claims[0].uid for claims in tried] == [other["metadata"]["uid"]]
            touched = {"metadata": {"annotations": {"touched": "1"}}}
            await stand.kube.patch(PODS, "p", touched, "default")
            await eventually(lambda: len(tried) == 2)


async def test_a_plugin_is_registered_when_the_kubelet_looks_next(stand, eventually):
    async with stand.kubelet(KubeletTimings(registration_s=HOUR_S)):
        await stand.make_pod("first")
        await stand.reaches("first", "Running")
        async with stand.agent(is_registered=False):
            await eventually(stand.sockets)
            await waiting_pod(stand, eventually)
            assert await stand.slices() == []


async def test_pods_show_the_health_of_their_devices(stand, eventually):
    async with stand.agent(), stand.kubelet():
        claim = await stand.make_claim("c", [await stand.device(0), await stand.device(1)])
        await stand.reserve("c", await stand.make_pod("p", {"gpu": "c"}))

        async def health() -> list[str]:
            (container,) = (await stand.pod("p"))["status"]["containerStatuses"]
            (shown,) = container.get("allocatedResourcesStatus") or [{"resources": []}]
            return [one["health"] for one in shown["resources"]]

        async def shows(*wanted: str) -> None:
            async def is_shown() -> bool:
                return await health() == list(wanted)

            await eventually(is_shown)

        await stand.reaches("p", "Running")
        await shows("Healthy", "Healthy")
        (container,) = (await stand.pod("p"))["status"]["containerStatuses"]
        (shown,) = container["allocatedResourcesStatus"]
        assert shown["name"] == "claim:gpu"
        prefix = f"tensor-fusion.ai/gpu={claim['metadata']['uid']}-"
        assert all(one["resourceID"].startswith(prefix) for one in shown["resources"])

        (stand.group.state_dir / "unhealthy").write_text("1 xid-79\n")
        await shows("Healthy", "Unhealthy")
        (stand.group.state_dir / "unhealthy").write_text("")
        await shows("Healthy", "Healthy")


async def test_health_is_unknown_while_no_agent_says_it(stand, eventually):
    async with stand.kubelet() as kubelets:
        plugins = kubelets.kubelets[0].plugins
        async with stand.agent():
            device = (DRIVER, stand.node, await stand.device())
            await eventually(lambda: plugins.health(device)[0] == "Healthy")
        await eventually(lambda: plugins.health(device)[0] == "Unknown")
