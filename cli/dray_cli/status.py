"""``dray status``: the processes of a local stack."""

import asyncio
from typing import Any

import click

from dray_cli.output import output_option, print_json
from dray_cli.stacks import running_stack, stack_option
from dray_cli.tables import Cell, echo_table
from dray_cli.text import wrapped_on_terminal
from dray_sandbox.background_stack import supervisor_log
from dray_sandbox.probes import answers
from dray_sandbox.stack_file import ProcessRecord, StackFile, is_alive

_WELL = frozenset({"ready", "running"})
_HEADINGS = ("PROCESS", "STATE", "RESTARTS", "PID", "HEALTH PAGE")


@click.command()
@stack_option
@output_option
def status(stack: str | None, output: str) -> None:
    """Show a local stack: its processes, health pages and restarts, and the KUBECONFIG line.

    Exit code 1: no such stack runs, or a process is not ready.
    """
    found = running_stack(stack)
    states = asyncio.run(_states(found))
    if output == "json":
        print_json(_as_json(found, states))
    else:
        _show(found, states)
    raise SystemExit(0 if set(states) <= _WELL else 1)


async def _states(stack: StackFile) -> list[str]:
    return list(await asyncio.gather(*map(_state, stack.processes)))


async def _state(process: ProcessRecord) -> str:
    """The state of a process; ``running`` if it has no health page with plain HTTP."""
    if not is_alive(process):
        return "ended"
    if not process.health_url.startswith("http://"):
        return "running"
    return "ready" if await answers(process.health_url)() else "not ready"


def _show(stack: StackFile, states: list[str]) -> None:
    policy = "starts them again when they end" if stack.restarts else "ends all when one ends"
    head = (
        f"The stack {stack.name!r} ({stack.control_plane} control plane, "
        f"{len(stack.nodes)} nodes) runs; process {stack.supervisor.pid} {policy}."
    )
    click.echo(wrapped_on_terminal(head))
    rows = [
        (one.name, _state_cell(state), str(one.restarts), str(one.pid), one.health_url or "-")
        for one, state in zip(stack.processes, states, strict=True)
    ]
    echo_table(_HEADINGS, rows)
    logs = f"Logs: {stack.directory}/logs, and {supervisor_log(stack.name)} if it is detached"
    click.echo(wrapped_on_terminal(logs))
    click.echo(f"export KUBECONFIG={stack.kubeconfig}")


def _state_cell(state: str) -> Cell:
    return Cell(state, "green" if state in _WELL else "bold red")


def _as_json(stack: StackFile, states: list[str]) -> dict[str, Any]:
    return {
        "name": stack.name,
        "controlPlane": stack.control_plane,
        "kubeconfig": stack.kubeconfig,
        "restarts": stack.restarts,
        "processes": [
            {
                "name": one.name,
                "state": state,
                "restarts": one.restarts,
                "pid": one.pid,
                "healthUrl": one.health_url,
                "log": one.log,
            }
            for one, state in zip(stack.processes, states, strict=True)
        ],
    }
