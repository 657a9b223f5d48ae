"""The effect of a rolling update of node-agents on one node, with ``maxSurge: 1``."""

import dataclasses

from dray_sandbox.probes import answers
from dray_sandbox.stack import Stack
from dray_sandbox.tcp_ports import free_port


async def start_second_agent(stack: Stack, agent: str) -> str:
    """Start a second node-agent for the node of ``agent``; returns its name once it is ready."""
    runner, port = stack.runner, free_port()
    health = f"http://127.0.0.1:{port}/readyz"
    old = runner.program(agent)
    new = dataclasses.replace(
        old,
        name=f"{agent}-new",
        environment={**old.environment, "DRAY_HEALTH__PORT": str(port)},
        ready=answers(health),
        health_url=health,
    )
    await runner.start(new)
    return new.name
