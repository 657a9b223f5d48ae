"""``dray-node-agent``, ``python -m dray_node_agent``: settings from the environment and TOML."""

import asyncio
import sys

from dray.api.errors import DrayError
from dray.runtime.settings import load
from dray_node_agent.app import run
from dray_node_agent.settings import NodeAgentSettings


def main() -> None:
    """Run the node-agent; exit code 1 if it can't start, 2 if its settings are wrong."""
    settings = load(NodeAgentSettings, sys.argv[1:])
    try:
        asyncio.run(run(settings))
    except DrayError as error:
        print(f"dray-node-agent: {error}", file=sys.stderr)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
