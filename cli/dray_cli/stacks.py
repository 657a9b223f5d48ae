"""The choice of the local stack on which a verb works."""

from typing import TYPE_CHECKING

import click

from dray.api.errors import InvalidInputError
from dray_sandbox.paths import stack_directory
from dray_sandbox.stack_file import NAME_VARIABLE, StackFile, read_stack_file, running_stacks

if TYPE_CHECKING:
    from dray_sandbox.layout import ControlPlane, KubeletKind


def stack_name(context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    """The callback of an option that names a stack. Raises click.BadParameter."""
    try:
        if name is not None:
            stack_directory(name)
    except InvalidInputError as error:
        raise click.BadParameter(str(error)) from error
    return name


stack_option = click.option(
    "--stack",
    metavar="NAME",
    envvar=NAME_VARIABLE,
    callback=stack_name,
    help="Which local stack, if several run; else $DRAY_STACK, else the default one.",
)
"""The option of verbs about local stacks."""


kubelet_option = click.option(
    "--kubelet",
    type=click.Choice(["simulated", "real"]),
    default="simulated",
    show_default=True,
    help="simulated: pods get their status, but no container runs; real: kubelet, containerd and "
    "runc run them in namespaces of this machine (needs root and `--control-plane real`).",
)


def control_plane_for(
    kubelet: "KubeletKind", control_plane: "ControlPlane | None"
) -> "ControlPlane | None":
    """The control plane that was chosen; with real kubelets always the real one. Raises
    click.UsageError."""
    if kubelet == "simulated":
        return control_plane
    if control_plane == "sandbox":
        raise click.UsageError("--kubelet real needs --control-plane real")
    return "real"


def running_stack(name: str | None) -> StackFile:
    """The running local stack with that name; without a name, the default one.

    Raises:
        InvalidInputError: the stack does not run; the error names the running ones.
    """
    if (stack := read_stack_file(name)) is not None:
        return stack
    running = ", ".join(one.name for one in running_stacks())
    sought = f"no local stack {name!r} runs" if name else "no local stack runs, or several do"
    raise InvalidInputError(
        f"{sought}; " + (f"there is {running}" if running else "start one with: dray up --detach")
    )
