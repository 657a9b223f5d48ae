"""``dray down``: end a local stack."""

import click

from dray.api.errors import PermanentError
from dray_cli.output import output_option, print_json
from dray_cli.target import stack_name_option
from dray_sandbox.stack_file import end_stack, read_stack_file, remove_stack_file


class StillRunningError(PermanentError):
    """Some process of the stack could not be ended."""


@click.command()
@stack_name_option
@output_option
def down(name: str, output: str) -> None:
    """Stop a stack that `dray up` started. Done, too, if there is none."""
    stack = read_stack_file(name)
    if stack is not None and not end_stack(stack):
        raise StillRunningError(
            f"some process of the stack {name!r} does not end: see {stack.directory}/stack.json"
        )
    remove_stack_file(name)
    if output == "json":
        print_json({"name": name, "stopped": stack is not None})
    elif stack is None:
        click.echo(f"No stack called {name!r} runs.")
    else:
        click.echo(f"Stopped the stack {name!r} ({len(stack.processes)} processes).")
