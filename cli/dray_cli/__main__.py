"""``dray``: the composition of all verbs. Verbs are imported only when they are called."""

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete

from dray.api.errors import DrayError, PermanentError

VERBS = {
    "up": ("dray_cli.up", "up", "Start a local stack that keeps running."),
    "down": ("dray_cli.down", "down", "Stop a local stack."),
    "status": ("dray_cli.status", "status", "Show a local stack's processes."),
    "kill": ("dray_cli.kill", "kill", "Kill a process of a local stack."),
    "fail": ("dray_cli.fail", "fail", "Make a simulated GPU unhealthy."),
    "demo": ("dray_cli.demo.verb", "demo", "Run the quick start and print each pod's timeline."),
    "convert": ("dray_cli.convert", "convert", "Convert manifests to valid resource.k8s.io/v1."),
    "cel": ("dray_cli.cel", "cel", "Translate and evaluate device selectors."),
    "check": ("dray_cli.check_slice", "check", "Check a driver's ResourceSlices."),
    "trace": ("dray_cli.trace.verb", "trace", "Show where a pod's time went, span by span."),
    "doctor": ("dray_cli.doctor.verb", "doctor", "Check the cluster and dray for problems."),
    "allocate": ("dray_cli.allocate", "allocate", "Say which devices claims get, offline."),
    "simulate": ("dray_cli.simulate.verb", "simulate", "Try placement on a recorded cluster."),
    "gpus": ("dray_cli.gpus", "gpus", "List the GPUs and who holds them."),
    "top": ("dray_cli.top", "top", "Watch nodes, GPUs, pools and waiting pods."),
    "explain": ("dray_cli.explain", "explain", "Say why a pod waits, or what it got."),
    "completion": ("dray_cli.completion", "completion", "Print a shell's completion script."),
    "record": ("dray_cli.record", "record", "Record facts, decisions and journals."),
    "chart": ("dray_cli.chart.verb", "chart", "Run the Helm chart's jobs."),
    "replay": ("dray_cli.replay.verb", "replay_verb", "Repeat recorded decisions and compare."),
}


class LazyGroup(click.Group):
    """A group whose verbs are modules, imported on first use: ``--help`` stays instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module, attribute, _ = VERBS[cmd_name]
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        except KeyboardInterrupt as interrupt:  # the import takes a second or two on a slow disk
            raise PermanentError(f"interrupted before `dray {cmd_name}` began") from interrupt
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of verbs; no verb is imported."""
        verbs = [
            CompletionItem(verb, help=text)
            for verb, (_, _, text) in VERBS.items()
            if verb.startswith(incomplete)
        ]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, _, text) in VERBS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dray", prog_name="dray")
def cli() -> None:
    """GPUs for Kubernetes pods, whole or in fractions, through Dynamic Resource Allocation.

    Exit codes: 0 done, 1 failed, 2 used wrongly.
    """


def main(arguments: list[str] | None = None, *, name: str = "dray") -> Any:
    """Run the command line; a DrayError is printed as one sentence, without a traceback."""
    try:
        return cli.main(
            args=arguments, prog_name=name, complete_var="_DRAY_COMPLETE", standalone_mode=True
        )
    except DrayError as error:
        click.echo(f"dray: {error}{_what_to_do(error)}", err=True)
        sys.exit(1)


def kubectl() -> Any:
    """``kubectl dray``: uses the cluster that kubectl talks to."""
    _follow_kubectl()
    return main(name="kubectl dray")


def kubectl_complete() -> None:
    """Complete ``kubectl dray …`` for kubectl: print one value per line, then cobra's directive
    not to complete file names."""
    _follow_kubectl()
    *before, incomplete = sys.argv[1:] or [""]
    completer = ShellComplete(cli, {}, "kubectl dray", "_DRAY_COMPLETE")
    for item in completer.get_completions(before, incomplete):
        click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(":4")


def _follow_kubectl() -> None:
    """Without KUBECONFIG, use ~/.kube/config as kubectl does, not a local stack's file."""
    default = Path.home() / ".kube" / "config"
    if not os.environ.get("KUBECONFIG") and default.exists():
        os.environ["KUBECONFIG"] = str(default)


def _what_to_do(error: DrayError) -> str:
    """Advice that the command line adds to an error's text; empty if it has none."""
    from dray.kube.ports import KubeUnavailableError

    if not isinstance(error, KubeUnavailableError):
        return ""
    return (
        "; does the cluster of --kubeconfig or $KUBECONFIG run? If it is a local stack that was "
        "stopped, start it with `dray up --detach`, and export the line that it prints"
    )


if __name__ == "__main__":
    main()
