"""``dray completion``: the script with which a shell completes verbs, options and names."""

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

_CLASSES: dict[str, type[ShellComplete]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}


@click.command()
@click.argument("shell", type=click.Choice(tuple(_CLASSES)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell, which also completes names from the cluster.

    \b
    bash: source <(dray completion bash)
    zsh: source <(dray completion zsh)
    fish: dray completion fish | source
    """
    script = _CLASSES[shell](context.find_root().command, {}, "dray", "_DRAY_COMPLETE")
    click.echo(script.source())
