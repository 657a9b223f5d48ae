"""``python -m dray_sandbox.agents``: runs the node-agents of many nodes in one process.

Each is a complete agent with its own simulated GPUs, slices, plugin socket, CDI files, checkpoint
and bus connection, which carries the node's identity. They share the connection to Kubernetes and
the watches. One process per node would take 60 MB each; here a node takes 0.5 MB.
"""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from dray.api.errors import DrayError, InvalidInputError
from dray.kube import api
from dray.kube.ports import PODS, SLICES, Kube
from dray.messages.inputs import AgentNoted
from dray.recording.journal import Journal
from dray.runtime import lifetime, logs
from dray.runtime.clock import SystemClock
from dray.runtime.garbage import collect_seldom
from dray.runtime.health import HealthPages
from dray.runtime.settings import load
from dray.telemetry import spans
from dray_node_agent.app import SERVICE, assemble, connect_bus, open_gpus, prepared_folders
from dray_node_agent.settings import NodeAgentSettings, NodeGroup
from dray_sandbox.shared_watches import SharedWatches

_PARTS = 8
STARTING_AT_ONCE = 32
"""If all started together, NATS would end their connections before this process could answer."""
_LOOK_EVERY_S = 0.1
_LOOKS = 300
"""An agent that is not ready by then holds up no others."""
_STARTING_AT_ONCE = 32
"""If all began together, NATS would end their connections before this process could answer."""
_LOOK_EVERY_S = 0.1
_LOOKS = 300
"""An agent that is not ready by then holds up no others."""


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line. Exits with 2 if it is wrong."""
    parser = argparse.ArgumentParser("python -m dray_sandbox.agents", description=__doc__)
    parser.add_argument(
        "--node",
        action="append",
        required=True,
        metavar="NAME:MODEL:COUNT:PLUGINS_DIR:REGISTRY_DIR:CDI_DIR:STATE_DIR:TOKEN_FILE",
        help="a node and its simulated GPUs; may be repeated",
    )
    return parser.parse_args(arguments)


def _node_group(text: str, common: NodeGroup) -> NodeGroup:
    """The settings of one ``--node``; the others come from ``common``. Raises InvalidInputError."""
    parts = text.split(":")
    if len(parts) != _PARTS:
        raise InvalidInputError(f"--node {text!r}: expected {_PARTS} parts between colons")
    name, model, count, *folders = parts
    paths = ("plugins_dir", "registry_dir", "cdi_dir", "state_dir", "token_file")
    return common.model_copy(
        update={
            "name": name,
            "model": model,
            "count": int(count),
            **dict(zip(paths, map(Path, folders), strict=True)),
        }
    )


async def run(settings: NodeAgentSettings, nodes: Sequence[NodeGroup]) -> None:
    """Run all of them until SIGTERM or SIGINT."""
    logs.configure(SERVICE, settings.instance, level=settings.log.level, format=settings.log.format)
    spans.configure(SERVICE, settings.instance)
    kube = await api.connect(settings.kube.kubeconfig, user_agent=f"dray-{SERVICE}")
    watches = SharedWatches(kube, PODS, SLICES)
    health = HealthPages(settings.health.host, settings.health.port)
    agents = Agents(settings, cast(Kube, watches), health)
    loops: dict[str, Any] = {f"agent of {node.name}": agents.add(node) for node in nodes}

    async def export_spans() -> None:
        await asyncio.to_thread(spans.shutdown)

    close = (agents.close, kube.close, export_spans)
    await lifetime.serve(health=health, close=close, watches=watches.run, **loops)


class Agents:
    """The agents of some nodes. A few start at a time, in their order."""

    def __init__(self, settings: NodeAgentSettings, kube: Kube, health: HealthPages) -> None:
        self._settings = settings
        self._kube = kube
        self._health = health
        self._starting = asyncio.Semaphore(STARTING_AT_ONCE)
        self._close: list[Callable[[], Awaitable[None]]] = []

    def add(self, node: NodeGroup) -> lifetime.Loop:
        """The loop of a node's agent. Not ready before the agent is."""
        own = HealthPages()  # this agent's checks; never served
        started = asyncio.Event()
        self._health.check(
            node.name, lambda: None if started.is_set() and own.ready else "not ready"
        )
        return partial(self._run, node, own, started)

    async def close(self) -> None:
        """Write the journals, and close the connections to NATS."""
        await asyncio.gather(*(close() for close in self._close))

    async def _run(self, node: NodeGroup, own: HealthPages, started: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group, self._starting:
            for name, loop in (await self._assembled(node, own)).items():
                group.create_task(loop(), name=f"{node.name}-{name}")
            started.set()
            for _ in range(_LOOKS):
                if own.ready:
                    break
                await asyncio.sleep(_LOOK_EVERY_S)

    async def _assembled(self, node: NodeGroup, own: HealthPages) -> dict[str, lifetime.Loop]:
        bus = await connect_bus(self._settings, node)
        journal = None
        if self._settings.record:
            journal = Journal(bus, AgentNoted, SystemClock(), instance=node.name)

        async def close() -> None:
            if journal is not None:
                await journal.flush()
            await bus.close()

        self._close.append(close)
        namespace, gpus = self._settings.namespace, open_gpus(node)
        agent = assemble(node, node.name, bus, self._kube, gpus, own, journal, namespace)
        del agent["containers"]  # it is for metrics, which nobody can read here
        return agent


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 after a signal, 1 on failure, 2 if the command line or a setting is wrong."""
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    settings = load(NodeAgentSettings)
    collect_seldom()
    try:
        nodes = [_node_group(text, settings.node) for text in options.node]
        with contextlib.ExitStack() as folders:
            for node in nodes:
                folders.enter_context(prepared_folders(node))
            asyncio.run(run(settings, nodes))
    except DrayError as error:
        print(f"agents: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
