"""The node-agents of many nodes in one process."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dray.bus.memory import MemoryBus
from dray.kube.memory import MemoryKube
from dray_node_agent.settings import NodeAgentSettings, NodeGroup
from dray_sandbox import agents


@pytest.mark.parametrize("record", [False, True])
def test_each_agent_has_its_loops_and_writes_a_journal_if_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, record: bool
) -> None:
    served: dict[str, Any] = {}

    async def bus(*_: object) -> MemoryBus:
        return MemoryBus()

    async def kube(*_: object, **__: object) -> MemoryKube:
        return MemoryKube()

    async def serve(**arguments: Any) -> None:
        served.update(arguments)

    monkeypatch.setattr(agents, "connect_bus", bus)
    monkeypatch.setattr("dray.kube.api.connect", kube)
    monkeypatch.setattr("dray.runtime.lifetime.serve", serve)
    nodes = [
        NodeGroup(
            name=name,
            state_dir=tmp_path / name,
            plugins_dir=tmp_path / "p",
            registry_dir=tmp_path / "r",
            cdi_dir=tmp_path / "c",
        )
        for name in ("n1", "n2")
    ]
    settings = NodeAgentSettings(
        node=nodes[0],
        record=record,
        kube={"kubeconfig": "unused"},
        nats={"url": "nats://unused:1"},
    )
    asyncio.run(agents.run(settings, nodes))
    assert {"watches", "n1-publish", "n2-publish", "n2-pods"} <= set(served)
    journals = {name for name in served if name.endswith("-journal")}
    assert journals == ({"n1-journal", "n2-journal"} if record else set())
