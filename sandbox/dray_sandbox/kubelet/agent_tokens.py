"""``python -m dray_sandbox.kubelet.agent_tokens``: tokens of node-agents that run as processes.

A kubelet renews tokens only for its pods. This program renews them for agents of nodes with real
kubelets, including nodes that are added, or created again under the same name.
"""

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path

from dray.api.errors import DrayError
from dray.kube import api
from dray.kube.ports import NODES, Kube, NotFoundError
from dray.runtime import lifetime, logs
from dray_sandbox.kubelet.tokens import TokenFile

_TOKEN_FILE = "token"
_POLL_S = 1.0


def main() -> int:
    """Exit code 0 after a signal, 1 on failure, 2 if the command line is wrong."""
    parser = argparse.ArgumentParser("python -m dray_sandbox.kubelet.agent_tokens")
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--nodes", type=Path, required=True, help="folder with one folder per node")
    options = parser.parse_args()
    try:
        asyncio.run(_run(options.kubeconfig, options.nodes))
    except DrayError as error:
        print(f"agent-tokens: {error}", file=sys.stderr)
        return 1
    return 0


async def _run(kubeconfig: str, nodes: Path) -> None:
    logs.configure("agent-tokens", "all", level="info", format="json")
    kube = await api.connect(kubeconfig, user_agent="dray-agent-tokens")
    await lifetime.serve(close=(kube.close,), tokens=lambda: _follow_nodes(kube, nodes))


async def _follow_nodes(kube: Kube, nodes: Path) -> None:
    """Loop: renew the token of every node that has a folder and a Node object."""
    kept: dict[str, tuple[str, asyncio.Task[None]]] = {}
    async with asyncio.TaskGroup() as group:
        while True:
            for folder in await asyncio.to_thread(lambda: list(nodes.iterdir())):
                name = folder.name
                uid, task = kept.get(name, ("", None))
                new = await _uid(kube, name, uid)
                if new != uid:
                    if task is not None:
                        task.cancel()
                    # A token is bound to one Node: a new Node of the same name needs a new token.
                    keep = TokenFile(kube, name, folder / _TOKEN_FILE).run()
                    kept[name] = new, group.create_task(keep)
            await asyncio.sleep(_POLL_S)


async def _uid(kube: Kube, node: str, known: str) -> str:
    """The Node's uid; ``known`` if there is no Node or no answer."""
    with contextlib.suppress(NotFoundError, DrayError):
        return str((await kube.get(NODES, node))["metadata"]["uid"])
    return known


if __name__ == "__main__":
    raise SystemExit(main())
