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
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from dray.api.errors import DrayError, InvalidInputError
from dray.bus.jetstream import JetStreamBus
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
"""After this many checks, an agent that is not ready no longer delays the others."""


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


@dataclass(frozen=True, slots=True)
class _AgentOfNode:
    """One node's agent, which starts when its turn comes."""

    bus: JetStreamBus
    checks: HealthPages
    """Never served."""
    started: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ready(self) -> bool:
        return self.started.is_set() and self.checks.ready

    def start(self) -> None:
        self.bus.start()
        self.started.set()

    async def run(self, loop: lifetime.Loop) -> None:
        """Run one of its loops once it has started."""
        await self.started.wait()
        await loop()


async def run(settings: NodeAgentSettings, nodes: Sequence[NodeGroup]) -> None:
    """Run all of them until SIGTERM or SIGINT."""
    logs.configure(SERVICE, settings.instance, level=settings.log.level, format=settings.log.format)
    spans.configure(SERVICE, settings.instance)
    connected = await api.connect(settings.kube.kubeconfig, user_agent=f"dray-{SERVICE}")
    watches = SharedWatches(connected, PODS, SLICES)
    kube = cast(Kube, watches)
    health = HealthPages(settings.health.host, settings.health.port)
    agents: list[_AgentOfNode] = []
    loops: dict[str, Any] = {"watches": watches.run, "starts": partial(_start_all, agents)}
    journals: list[Journal] = []
    for node in nodes:
        agent = _AgentOfNode(await connect_bus(settings, node, wait_s=None), HealthPages())
        agents.append(agent)
        journal = None
        if settings.record:
            journal = Journal(agent.bus, AgentNoted, SystemClock(), instance=node.name)
            journals.append(journal)
        gpus = open_gpus(node)
        own = assemble(
            node, node.name, agent.bus, kube, gpus, agent.checks, journal, settings.namespace
        )
        del own["containers"]  # it is for metrics, which can't be read here
        loops |= {f"{node.name}-{name}": partial(agent.run, loop) for name, loop in own.items()}
        health.check(node.name, partial(_problem, agent))

    async def export_spans() -> None:
        await asyncio.to_thread(spans.shutdown)

    close = (
        partial(_all, [journal.flush for journal in journals]),
        partial(_all, [agent.bus.close for agent in agents]),
        kube.close,
        export_spans,
    )
    await lifetime.serve(health=health, close=close, **loops)


async def _start_all(agents: Sequence[_AgentOfNode]) -> None:
    """Start the agents in order, a few at a time; then do nothing."""
    free = asyncio.Semaphore(STARTING_AT_ONCE)

    async def until_ready(agent: _AgentOfNode) -> None:
        for _ in range(_LOOKS):
            if agent.ready:
                break
            await asyncio.sleep(_LOOK_EVERY_S)
        free.release()

    async with asyncio.TaskGroup() as group:
        for agent in agents:
            await free.acquire()
            agent.start()
            group.create_task(until_ready(agent))
    await asyncio.Event().wait()


def _problem(agent: _AgentOfNode) -> str | None:
    return None if agent.ready else "not ready"


async def _all(steps: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run all steps concurrently. Raises the first error after the last step has ended."""
    for ended in await asyncio.gather(*(step() for step in steps), return_exceptions=True):
        if isinstance(ended, BaseException):
            raise ended


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
