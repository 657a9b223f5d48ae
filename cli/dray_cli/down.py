"""``dray down``: end a local stack."""

import click

from dray.api.errors import PermanentError
from dray_cli.output import output_option, print_json
from dray_cli.stacks import stack_option
from dray_sandbox.last_run import remove_leftovers
from dray_sandbox.stack_file import DEFAULT_NAME, end_stack, read_stack_file, remove_stack_file
from dray_sandbox.stack_lock import stack_lock


class StillRunningError(PermanentError):
    """Some process of the stack could not be ended."""


@click.command()
@stack_option
@output_option
def down(stack: str | None, output: str) -> None:
    """Stop a stack that `dray up` started. It is not an error if there is none.

    Its objects and logs stay until the next `dray up` of this name; `dray up --keep` continues
    with them.
    """
    name = stack or DEFAULT_NAME
    running = read_stack_file(name)
    if running is not None and not end_stack(running):
        raise StillRunningError(
            f"some process of the stack {name!r} does not end: see {running.directory}/stack.json"
        )
    with stack_lock(name):
        remove_stack_file(name)
        remove_leftovers(name)
    if output == "json":
        print_json({"name": name, "stopped": running is not None})
    elif running is None:
        click.echo(f"No stack called {name!r} runs.")
    else:
        click.echo(f"Stopped the stack {name!r} ({len(running.processes)} processes).")
