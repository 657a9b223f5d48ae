"""Which cluster a verb talks to: flags, then ``KUBECONFIG``, then the local stack's file."""

import os

import click

from dray.domain.errors import InvalidInputError
from dray.kube.api import connect
from dray.kube.ports import Kube
from dray_sandbox.stack_file import read_stack_file

kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False),
    help="Kubeconfig of the cluster; else $KUBECONFIG, else the local stack's.",
)


def kubeconfig_of(flag: str | None) -> str:
    """The kubeconfig a verb uses.

    Raises:
        InvalidInputError: no flag, no ``KUBECONFIG`` and no local stack.
    """
    if flag:
        return flag
    if from_environment := os.environ.get("KUBECONFIG"):
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
