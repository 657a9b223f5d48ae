"""Which cluster a verb talks to: flags, then the environment, then the local stack's file."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dray.api.errors import InvalidInputError
from dray.kube.api import connect
from dray.kube.ports import Kube
from dray_cli.stacks import running_stack, stack_name
from dray_sandbox.stack_file import StackFile, read_stack_file, running_stacks

_STACK = "dray.stack"
"""Key of the chosen stack in click's context."""


def _choose_stack(context: click.Context, parameter: click.Parameter, name: str | None) -> None:
    if name is not None:
        context.meta[_STACK] = running_stack(stack_name(context, parameter, name))


def _choose_kubeconfig(
    context: click.Context, parameter: click.Parameter, path: str | None
) -> str | None:
    stack: StackFile | None = context.meta.get(_STACK)
    if stack is None:
        return path
    if path is not None:
        raise click.UsageError("--stack and --kubeconfig both name a cluster: give one of them")
    return stack.kubeconfig


def kubeconfig_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that choose a cluster: ``--kubeconfig``, which the verb gets, or ``--stack``."""
    by_path = click.option(
        "--kubeconfig",
        type=click.Path(exists=True, dir_okay=False),
        callback=_choose_kubeconfig,
        help="Kubeconfig of the cluster; else $KUBECONFIG, else the local stack's.",
    )
    by_stack = click.option(
        "--stack",
        metavar="NAME",
        expose_value=False,
        is_eager=True,
        callback=_choose_stack,
        help="Use the local stack of that name as the cluster.",
    )
    return by_stack(by_path(command))


nats_option = click.option(
    "--nats",
    metavar="URL",
    envvar="DRAY_NATS__URL",
    help="The bus; else $DRAY_NATS__URL, else the local stack's or the installation's. User and "
    "password are those of $DRAY_NATS__USER and $DRAY_NATS__PASSWORD.",
)


def kubeconfig_of(flag: str | None) -> str:
    """The kubeconfig that a verb uses.

    Raises:
        InvalidInputError: there is no flag, no existing ``KUBECONFIG`` and no local stack.
    """
    if flag:
        return flag
    if from_environment := os.environ.get("KUBECONFIG"):
        if not any(Path(one).exists() for one in from_environment.split(os.pathsep)):
            raise InvalidInputError(
                f"KUBECONFIG names {from_environment!r}, which does not exist: export the line "
                "that `dray up` prints, or unset it"
            )
        return from_environment
    if (stack := read_stack_file()) is not None:
        return stack.kubeconfig
    raise InvalidInputError(
        "no cluster: no --kubeconfig, no KUBECONFIG and no local stack was found; "
        "give one, or start a local stack with: dray up --detach"
    )


async def connect_kube(flag: str | None) -> Kube:
    """The API of the cluster that the flags choose."""
    return await connect(kubeconfig_of(flag), user_agent="dray-cli")


def stack_of(kubeconfig: str) -> StackFile | None:
    """The running local stack to which the kubeconfig belongs, or None."""
    paths = {Path(one).resolve() for one in kubeconfig.split(os.pathsep)}
    for stack in running_stacks():
        if not paths.isdisjoint(map(Path, (stack.kubeconfig, *stack.kubeconfigs.values()))):
            return stack
    return None
