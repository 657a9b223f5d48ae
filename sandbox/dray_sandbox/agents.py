"""``python -m dray_sandbox.agents``: runs the node-agents of many nodes in one process.

Each is a complete agent with its own simulated GPUs, slices, plugin socket, CDI files, checkpoint
and bus connection, which carries the node's identity. They share the connection to Kubernetes and
the watches. One process per node would take 60 MB each; here a node takes 0.5 MB.
"""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Sequence
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
from dray.runtime.health import HealthPages
from dray.runtime.settings import load
from dray.telemetry import spans
from dray_node_agent.app import SERVICE, assemble, connect_bus, open_gpus, prepared_folders
from dray_node_agent.settings import NodeAgentSettings, NodeGroup
from dray_sandbox.shared_watches import SharedWatches

_PARTS = 8


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
    buses = await asyncio.gather(*(connect_bus(settings, node) for node in nodes))
    connected = await api.connect(settings.kube.kubeconfig, user_agent=f"dray-{SERVICE}")
    watches = SharedWatches(connected, PODS, SLICES)
    kube = cast(Kube, watches)
    health = HealthPages(settings.health.host, settings.health.port)
    loops: dict[str, Any] = {"watches": watches.run}
    closed: list[Any] = []
    for node, bus in zip(nodes, buses, strict=True):
        own = HealthPages()  # this agent's checks; never served
        journal = None
        if settings.record:
            journal = Journal(bus, AgentNoted, SystemClock(), instance=node.name)
            closed.append(journal.flush)
        agent = assemble(
            node, node.name, bus, kube, open_gpus(node), own, journal, settings.namespace
        )
        del agent["containers"]  # it is for metrics, which nobody can read here
        loops |= {f"{node.name}-{name}": loop for name, loop in agent.items()}
        health.check(node.name, partial(_problem, own))

    async def export_spans() -> None:
        await asyncio.to_thread(spans.shutdown)

    closed += [bus.close for bus in buses]
    await lifetime.serve(health=health, close=(*closed, kube.close, export_spans), **loops)


def _problem(own: HealthPages) -> str | None:
    return None if own.ready else "not ready"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 after a signal, 1 on failure, 2 if the command line or a setting is wrong."""
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    settings = load(NodeAgentSettings)
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
