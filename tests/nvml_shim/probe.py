"""Reads GPUs by NVML for a test: one command a line, one JSON text a line.

A process of its own, because a process loads one NVML.
"""

import asyncio
import json
import sys
from pathlib import Path

import msgspec
import structlog

from dray.api.errors import DrayError
from dray_node_agent.app import open_gpus
from dray_node_agent.settings import NodeGroup


async def main() -> None:
    """Answer until the input ends."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    driver, sysfs, deadline_s = sys.argv[1:]
    node = NodeGroup(
        name="n", driver_root=Path(driver), sysfs=Path(sysfs), nvml_timeout=float(deadline_s)
    )
    gpus = open_gpus(node)
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = line.strip()
        try:
            if command == "wait":
                await gpus.wait(30.0)
                answer: object = {}
            else:
                answer = await getattr(gpus, command)()
        except DrayError as error:
            answer = {"error": str(error)}
        text = json.dumps(msgspec.to_builtins(answer))
        print(text, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
