"""Names of the cluster's objects for shell completion: pods, namespaces, pools and nodes.

If the cluster does not answer, no names are offered and no error is printed.
"""

import asyncio
from collections.abc import Callable

import click

from dray.api.errors import DrayError
from dray.kube.ports import (
    NAMESPACES,
    NATIVE_POD_GROUPS,
    NODES,
    POD_GROUPS,
    PODS,
    POOLS,
    Resource,
)
from dray_cli.target import connect_kube

_PATIENCE_S = 3.0
_POD_PREFIX = "pod/"
_GROUP_PREFIX = "podgroup/"
GROUP_WORDS = ("podgroup", "podgroups", "pg")
"""Words that kubectl accepts before the slash of a PodGroup's name."""
GROUP_KINDS = (POD_GROUPS, NATIVE_POD_GROUPS)
"""Kinds of groups. A name stands for a group of the first kind that has such a group."""

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _complete_pods(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """``pod/NAME`` for each pod of the namespace, also if only the start of ``NAME`` is typed."""
    kind, slash, begun = incomplete.rpartition("/")
    if slash and kind not in ("pod", "pods", "po"):
        return []
    prefix = f"{kind}/" if slash else _POD_PREFIX
    if not slash and _POD_PREFIX.startswith(incomplete):
        begun = ""
    namespace = context.params.get("namespace") or "default"
    return [prefix + name for name in _names(context, PODS, namespace) if name.startswith(begun)]


def _complete_explained(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Pods, as in ``_complete_pods``, and ``podgroup/NAME`` for each PodGroup of the namespace."""
    kind, slash, begun = incomplete.rpartition("/")
    if not slash and not _GROUP_PREFIX.startswith(incomplete):
        return _complete_pods(context, parameter, incomplete)
    if slash and kind not in GROUP_WORDS:
        return _complete_pods(context, parameter, incomplete)
    prefix = f"{kind}/" if slash else _GROUP_PREFIX
    namespace = context.params.get("namespace") or "default"
    found = [name for resource in GROUP_KINDS for name in _names(context, resource, namespace)]
    groups = [prefix + name for name in dict.fromkeys(found) if not slash or name.startswith(begun)]
    return groups if slash else [*_complete_pods(context, parameter, incomplete), *groups]


def _completer_of(resource: Resource) -> Completer:
    """A function that completes the names of a cluster-scoped kind."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        return [name for name in _names(context, resource) if name.startswith(incomplete)]

    return complete


def _names(context: click.Context, resource: Resource, namespace: str = "") -> list[str]:
    async def read() -> list[str]:
        kube = await connect_kube(context.params.get("kubeconfig"))
        try:
            async with asyncio.timeout(_PATIENCE_S):
                listed = await kube.list(resource, namespace)
        finally:
            await kube.close()
        return sorted(str(one["metadata"]["name"]) for one in listed.objects)

    try:
        return asyncio.run(read())
    except (DrayError, TimeoutError):
        return []


pod_argument = click.argument("target", metavar="pod/NAME", shell_complete=_complete_pods)
explained_argument = click.argument(
    "target", metavar="pod/NAME|podgroup/NAME", shell_complete=_complete_explained
)
namespace_option = click.option(
    "-n",
    "--namespace",
    default="default",
    show_default=True,
    shell_complete=_completer_of(NAMESPACES),
)
pool_option = click.option(
    "--pool", default="", help="Only GPUs of this GPUPool.", shell_complete=_completer_of(POOLS)
)
node_option = click.option(
    "--node", default="", help="Only GPUs of this node.", shell_complete=_completer_of(NODES)
)
