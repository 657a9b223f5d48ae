"""``dray up``: starts a local stack that keeps running."""

import asyncio
from collections.abc import Callable

import click

from dray.api.errors import InvalidInputError
from dray_cli.output import output_option, print_json
from dray_cli.progress import StepProgress
from dray_cli.recording_file import record_option, recording_settings
from dray_cli.stacks import control_plane_for, kubelet_option, stack_option
from dray_sandbox.background_stack import InterruptedStartError, start_detached
from dray_sandbox.controlplane.build import find_built
from dray_sandbox.last_run import kept_control_plane
from dray_sandbox.layout import (
    DEFAULT_GPUS,
    DEFAULT_MODELS,
    DEFAULT_NODES,
    DEFAULT_POOLS,
    MOST_AGENT_PROCESSES,
    MOST_REAL_NODES,
    ControlPlane,
    KubeletKind,
    StackOptions,
    simulated_nodes,
)
from dray_sandbox.stack_file import DEFAULT_NAME, StackFile


@click.command()
@click.option(
    "--nodes",
    type=click.IntRange(0, 2000),
    default=DEFAULT_NODES,
    show_default=True,
    help=f"Above {MOST_AGENT_PROCESSES}, one process runs all simulated nodes' agents. "
    f"At most {MOST_REAL_NODES} with real kubelets.",
)
@click.option(
    "--gpus-per-node", type=click.IntRange(0, 64), default=DEFAULT_GPUS, show_default=True
)
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    default=DEFAULT_MODELS,
    show_default=True,
    help="GPU model; if given several times, nodes get them in turn.",
)
@click.option(
    "--pool",
    "pools",
    multiple=True,
    metavar="NAME",
    default=DEFAULT_POOLS,
    show_default=True,
    help="GPUPool in a node's label; if given several times, nodes get them in turn.",
)
@click.option(
    "--node-label",
    "labels",
    multiple=True,
    metavar="[NODE:]KEY=VALUE",
    help="Label of all nodes, or of one.",
)
@click.option("--allocators", type=click.IntRange(1, 9), default=1, show_default=True)
@click.option(
    "--control-plane",
    type=click.Choice(["sandbox", "real"]),
    help="dray's own Kubernetes API, which runs pods only, or a real kube-apiserver with its "
    "scheduler and controllers, built once from Go modules.  [default: the real one if it has "
    "been built, else the sandbox]",
)
@kubelet_option
@click.option(
    "--image",
    "images",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    metavar="FILE",
    help="Archive with images for real kubelets, as `docker save` writes it. Images not in an "
    "archive are replaced by one whose containers print their environment.",
)
@click.option(
    "--services/--no-services",
    default=True,
    show_default=True,
    help="Whether to run NATS and dray's services as processes. Without them, real kubelets are "
    "an empty cluster, in which the Helm chart can be installed.",
)
@click.option(
    "--keep",
    is_flag=True,
    help="Continue with the objects, decision logs and nodes of this stack's last run.",
)
@click.option(
    "--restart/--no-restart",
    default=True,
    show_default=True,
    help="Restart a process that exits; with --no-restart, stop the whole stack.",
)
@record_option
@click.option("--detach", is_flag=True, help="Return when it is ready; `dray down` stops it.")
@stack_option
@output_option
def up(
    nodes: int,
    gpus_per_node: int,
    models: tuple[str, ...],
    pools: tuple[str, ...],
    labels: tuple[str, ...],
    allocators: int,
    control_plane: ControlPlane | None,
    kubelet: KubeletKind,
    images: tuple[str, ...],
    services: bool,
    keep: bool,
    restart: bool,
    record: bool,
    detach: bool,
    stack: str | None,
    output: str,
) -> None:
    """Start NATS, a Kubernetes API, simulated GPU nodes and dray's services on this machine.

    Without --detach it runs until Ctrl-C.
    """
    try:
        played = simulated_nodes(
            nodes, gpus=gpus_per_node, models=models, pools=pools, labels=labels
        )
    except InvalidInputError as error:
        raise click.UsageError(str(error)) from error
    control_plane = control_plane_for(kubelet, control_plane)
    if kubelet == "simulated" and (images or not services):
        raise click.UsageError("--image and --no-services need --kubelet real")
    if kubelet == "real" and nodes > MOST_REAL_NODES:
        raise click.UsageError(f"--nodes {nodes}: at most {MOST_REAL_NODES} with --kubelet real")
    name = stack or DEFAULT_NAME
    with StepProgress() as say:
        options = StackOptions(
            name=name,
            control_plane=control_plane or _default_control_plane(name, keep, say),
            kubelet=kubelet,
            images=images,
            services=services,
            nodes=played,
            agents_in_one=kubelet == "simulated" and nodes > MOST_AGENT_PROCESSES,
            allocators=allocators,
            keep=keep,
            restart=restart,
            settings=recording_settings(record),
        )
        try:
            _start(options, say, output, detach=detach)
        except KeyboardInterrupt as interrupt:  # before `run_until_signal` handles signals
            raise InterruptedStartError("interrupted before the stack was ready") from interrupt


def _start(options: StackOptions, say: StepProgress, output: str, *, detach: bool) -> None:
    def on_ready(made: StackFile) -> None:
        say.end()
        show(made, output, attached=not detach)

    if detach:
        on_ready(asyncio.run(start_detached(options, say)))
        return
    from dray_sandbox.supervisor import run_until_signal  # All parts of a stack: slow to import

    asyncio.run(run_until_signal(options, say, on_ready))


def _default_control_plane(name: str, keep: bool, say: Callable[[str], None]) -> ControlPlane:
    if keep and (kept := kept_control_plane(name)) is not None:
        return kept
    if find_built() is not None:
        return "real"
    say(
        "this is the sandbox, which runs pods but no Deployments or Jobs; a real control plane "
        "runs them: `dray up --control-plane real` builds it once, in about 4 min"
    )
    return "sandbox"


def show(stack: StackFile, output: str, *, attached: bool = False) -> None:
    """Print how to use the stack."""
    if output == "json":
        print_json(_stack_as_data(stack))
        return
    end = "Ctrl-C stops it" if attached else f"`dray down --stack {stack.name}` stops it"
    click.echo(
        f"The stack {stack.name!r} runs on the {stack.control_plane} control plane with "
        f"{stack.kubelet} kubelets ({len(stack.processes)} processes); {end}."
    )
    click.echo(f"export KUBECONFIG={stack.kubeconfig}")


def _stack_as_data(stack: StackFile) -> dict[str, object]:
    """The stack without its passwords."""
    return {
        "name": stack.name,
        "controlPlane": stack.control_plane,
        "kubelet": stack.kubelet,
        "server": stack.server,
        "kubeconfig": stack.kubeconfig,
        "natsUrl": stack.nats_url,
        "webhookUrl": stack.webhook_url,
        "nodes": list(stack.nodes),
        "directory": stack.directory,
        "processes": [
            {"name": process.name, "pid": process.pid, "log": process.log}
            for process in stack.processes
        ],
    }
