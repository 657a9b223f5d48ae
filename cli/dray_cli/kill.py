"""``dray kill PROCESS``: kill a process of a local stack, to watch it recover."""

import click

from dray.api.errors import InvalidInputError
from dray_cli.stacks import running_stack, stack_option
from dray_sandbox.stack_file import kill_process


@click.command()
@click.argument("process")
@stack_option
def kill(process: str, stack: str | None) -> None:
    """Send SIGKILL to PROCESS, such as allocator or nats-server; `dray status` lists them.

    The stack starts it again, unless it was started with --no-restart.
    """
    found = running_stack(stack)
    record = next((one for one in found.processes if one.name == process), None)
    if record is None:
        names = ", ".join(one.name for one in found.processes)
        raise click.UsageError(
            f"the stack {found.name!r} has no process {process!r}; it has {names}"
        )
    if not kill_process(record):
        raise InvalidInputError(
            f"{process} is not running now: `dray status --stack {found.name}` shows when the "
            "stack has started it again"
        )
    then = "starts it again" if found.restarts else "ends now, as --no-restart says"
    click.echo(f"Killed {process} (process {record.pid}); the stack {found.name!r} {then}.")
