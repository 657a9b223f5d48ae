"""``python -m dray_sandbox.kubelet.agent_tokens``: tokens of node-agents that run as processes.

A kubelet renews tokens for its pods only. This does it for agents of nodes with real kubelets.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from dray.api.errors import DrayError
from dray.kube import api
from dray.runtime import lifetime, logs
from dray_sandbox.kubelet.tokens import TokenFile


def main() -> int:
    """Exit code 0 after a signal, 1 on failure, 2 if the command line is wrong."""
    parser = argparse.ArgumentParser("python -m dray_sandbox.kubelet.agent_tokens")
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--node", action="append", required=True, metavar="NAME:TOKEN_FILE")
    options = parser.parse_args()
    try:
        files = dict(map(_node_file, options.node))
        asyncio.run(_run(options.kubeconfig, files))
    except DrayError as error:
        print(f"agent-tokens: {error}", file=sys.stderr)
        return 1
    return 0


def _node_file(text: str) -> tuple[str, Path]:
    name, _, path = text.partition(":")
    return name, Path(path)


async def _run(kubeconfig: str, files: dict[str, Path]) -> None:
    logs.configure("agent-tokens", "all", level="info", format="json")
    kube = await api.connect(kubeconfig, user_agent="dray-agent-tokens")

    async def renew() -> None:
        async with asyncio.TaskGroup() as group:
            for name, path in files.items():
                group.create_task(TokenFile(kube, name, path).run())

    await lifetime.serve(close=(kube.close,), tokens=renew)


if __name__ == "__main__":
    raise SystemExit(main())
