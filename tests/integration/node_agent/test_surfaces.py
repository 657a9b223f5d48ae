"""What others see of the agent: metrics, the older kubelet protocol, settings."""

import asyncio

import prometheus_client
import pytest

from dray.api.names import DRIVER
from dray.runtime.settings import load
from dray_node_agent.settings import NodeAgentSettings
from dray_sandbox.kubelet.claims import ClaimInfo, NotStartedError


async def test_metrics_tell_cards_claims_and_failures(stand, eventually):
    async with stand.agent() as health:
        claim = await stand.make_claim("c", [await stand.device()])
        (stand.group.state_dir / "unhealthy").write_text("2 xid 79\n")
        plugin = await stand.plugin()
        await plugin.prepare([ClaimInfo(claim["metadata"]["uid"], "default", "c", (DRIVER,))])
        with pytest.raises(NotStartedError):
            await plugin.prepare([ClaimInfo("u", "default", "absent", (DRIVER,))])
        await plugin.close()

        def page() -> str:
            return prometheus_client.generate_latest(health.registry).decode()

        await eventually(lambda: 'dray_node_gpus{health="unhealthy"} 1.0' in page())
        assert 'dray_node_gpus{health="healthy"} 3.0' in page()
        assert "dray_node_claims_prepared 1.0" in page()
        assert "dray_node_prepare_failures_total 1.0" in page()
        assert "dray_node_prepare_seconds_count 1.0" in page()


async def test_the_share_of_a_device_is_reported_if_the_protocol_has_it(stand, eventually):
    async with stand.agent():
        claim = await stand.make_claim("c", [await stand.device()])
        held = ClaimInfo(claim["metadata"]["uid"], "default", "c", (DRIVER,))
        shares = {}
        for version in ("v1.DRAPlugin", "v1beta1.DRAPlugin"):
            plugin = await stand.plugin(version)
            ((device,),) = (await plugin.prepare([held])).values()
            shares[version] = device.share_id
            assert device.requests == ("gpu",)
            assert device.pool == "n1"
            await plugin.close()
        assert shares == {"v1.DRAPlugin": "share-c", "v1beta1.DRAPlugin": ""}


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
async def test_the_health_of_all_devices_is_repeated_in_either_version(
    stand, eventually, monkeypatch, version
):
    """The kubelet forgets what it has not heard for half a minute."""
    monkeypatch.setattr("dray_node_agent.kubelet.server._REPEAT_HEALTH_S", 0.05)
    monkeypatch.setattr(
        "dray_sandbox.kubelet.plugins._HEALTH_SERVICE", f"{version}.DRAResourceHealth"
    )
    async with stand.agent():
        plugin = await stand.plugin()
        lists = aiter(plugin.health())
        for health in ("Healthy", "Healthy", "Unhealthy"):
            if health == "Unhealthy":
                (stand.group.state_dir / "unhealthy").write_text("0 xid-79\n")
            async with asyncio.timeout(60):
                while (listed := await anext(lists))[0][1] != health:
                    assert len(listed) == 4
        assert listed[0][0] == (DRIVER, "n1", await stand.device(0))
        assert (listed[0][2], [one[1] for one in listed[1:]]) == ("xid-79", ["Healthy"] * 3)
        await lists.aclose()
        await plugin.close()


def test_every_wrong_setting_is_named(monkeypatch, capsys):
    monkeypatch.setenv("DRAY_NODE__NAME", "")
    monkeypatch.setenv("DRAY_NODE__MODEL", "Z9")
    monkeypatch.setenv("DRAY_NODE__SWEEP", "10")
    with pytest.raises(SystemExit) as stopped:
        load(NodeAgentSettings)
    assert stopped.value.code == 2
    errors = capsys.readouterr().err
    for name in ("DRAY_NODE__NAME", "DRAY_NODE__MODEL", "DRAY_NODE__SWEEP"):
        assert name in errors


def test_settings_are_read_with_their_units(monkeypatch):
    monkeypatch.setenv("DRAY_NODE__NAME", "n1")
    monkeypatch.setenv("DRAY_NODE__BOARD", "simulated")
    monkeypatch.setenv("DRAY_NODE__POLL", "250ms")
    node = load(NodeAgentSettings).node
    assert (node.name, node.board, node.poll, node.sweep) == ("n1", "simulated", 0.25, 600.0)
