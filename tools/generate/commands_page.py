"""``docs/commands.md``: the help of every command of ``dray``."""

from collections.abc import Iterator

import click

from dray_cli.__main__ import cli
from tools.generate.output import Output

_WIDTH = 100
_INTRODUCTION = """\
# Commands

What `dray COMMAND --help` prints. Exit codes of all commands: 0 done, 1 failed, 2 used wrongly.
`kubectl dray COMMAND` is the same.

<!-- written by `make generate` -->
"""


def rendered() -> str:
    """The page."""
    return "\n".join((_INTRODUCTION, *_sections(cli, "dray")))


def _sections(
    command: click.Command, path: str, parent: click.Context | None = None
) -> Iterator[str]:
    name = path.rsplit(" ", 1)[-1]
    context = click.Context(command, parent, info_name=name, **command.context_settings)
    command._help_option = None  # Click keeps that of the first context: a test's has no -h.
    context.max_content_width = context.terminal_width = _WIDTH
    yield f"## {path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (verb := command.get_command(context, name)) and not verb.hidden:
                yield from _sections(verb, f"{path} {name}", context)


OUTPUT = Output("docs", lambda: {"commands.md": rendered()})
