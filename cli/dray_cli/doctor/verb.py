"""``dray doctor``: checks cluster and bus; says what is missing and what to do."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import click

from dray.bus.ports import Bus, BusUnavailableError
from dray.kube.ports import (
    POOLS,
    Kube,
    KubeUnavailableError,
    NotFoundError,
    Object,
    RefusedError,
)
from dray.kube.probe import probe
from dray.messages.facts import ClusterObserved
from dray_cli.cluster_bus import NoBusAddressError, open_bus
from dray_cli.doctor import bus as on_bus
from dray_cli.doctor.capabilities import AREA as KUBERNETES
from dray_cli.doctor.capabilities import capabilities, disagreement, published_capabilities
from dray_cli.doctor.cluster import look_at_cluster
from dray_cli.doctor.deep.run import NOT_RUN, DeepResult, run_deep
from dray_cli.doctor.findings import Finding, as_json, broken, lines
from dray_cli.doctor.partial_facts import partial_facts_finding
from dray_cli.output import output_option, print_json
from dray_cli.target import (
    connect_kube,
    kubeconfig_option,
    nats_option,
)
from dray_cli.text import wrapped_on_terminal

_NO_NAMESPACE = 404


@click.command()
@click.option(
    "-n",
    "--namespace",
    default="default",
    show_default=True,
    help="Namespace of the dry-run requests; nothing is stored.",
)
@click.option(
    "--deep",
    is_flag=True,
    help="Compare decision logs, facts, allocators and claim statuses, name each difference, and "
    "say what FragmentationAware has learned.",
)
@kubeconfig_option
@nats_option
@output_option
def doctor(
    namespace: str, deep: bool, kubeconfig: str | None, nats: str | None, output: str
) -> None:
    """Check which features the cluster has and whether dray works on it.

    Dry-run requests show which features Kubernetes has, whatever its version. Then the webhook,
    slices, pools and streams are checked.
    Exit codes: 0 nothing is broken, 1 something is.
    """
    findings, looked = asyncio.run(_look(kubeconfig, nats, namespace, deep=deep))
    if output == "json":
        print_json(as_json(findings) | (looked.as_json() if looked is not None else {}))
    else:
        click.echo(wrapped_on_terminal("\n".join(lines(findings))))
    raise SystemExit(1 if broken(findings) else 0)


@dataclass(frozen=True, slots=True)
class _SeenOnBus:
    findings: Sequence[Finding]
    looked: DeepResult | None
    published: ClusterObserved | None = None
    """What the claim-controller has found about the cluster."""


async def _look(
    kubeconfig: str | None, nats: str | None, namespace: str, *, deep: bool
) -> tuple[list[Finding], DeepResult | None]:
    kube = await connect_kube(kubeconfig)
    try:
        await kube.version()  # Without an API server nothing else can be checked.
        probed, kept = await _kept(kube, namespace)
        found = await look_at_cluster(kube, namespace)
        seen = await _bus(kube, nats, kubeconfig, probed, deep=deep)
        if probed is None and seen.published is not None:
            kept = published_capabilities(seen.published)
        return [*kept, *found, *seen.findings], seen.looked
    finally:
        await kube.close()


async def _kept(kube: Kube, namespace: str) -> tuple[ClusterObserved | None, list[Finding]]:
    """The cluster's features, if they can be probed: dray's own webhook may prevent that."""
    try:
        probed = await probe(kube, namespace, revision=1)
    except (RefusedError, KubeUnavailableError) as error:
        if isinstance(error, RefusedError) and error.status == _NO_NAMESPACE:
            raise
        return None, [Finding(KUBERNETES, "what it keeps", "unseen", str(error))]
    return probed, capabilities(probed)


async def _bus(
    kube: Kube,
    nats: str | None,
    kubeconfig: str | None,
    probed: ClusterObserved | None,
    *,
    deep: bool,
) -> _SeenOnBus:
    try:
        async with open_bus(kubeconfig, nats) as bus:
            return await _look_at_bus(bus, kube, probed, deep=deep)
    except NoBusAddressError as error:
        return _not_reached(on_bus.not_checked(str(error)), deep)
    except BusUnavailableError as error:
        return _not_reached(on_bus.not_reached(str(error)), deep)


async def _look_at_bus(
    bus: Bus, kube: Kube, probed: ClusterObserved | None, *, deep: bool
) -> _SeenOnBus:
    published = await on_bus.published_probe(bus)
    differing = disagreement(probed, published) if probed and published else None
    checks = await on_bus.look_at_bus(bus, await _pools(kube))
    partial = await partial_facts_finding(bus, kube)
    leader = await on_bus.leader_finding(bus, time.time())
    found = [*([differing] if differing else []), leader, *checks, partial]
    looked = await run_deep(bus, kube) if deep else None
    return _SeenOnBus([*found, *(looked.findings if looked else ())], looked, published)


def _not_reached(why: Finding, deep: bool) -> _SeenOnBus:
    looked = NOT_RUN if deep else None
    return _SeenOnBus([why, *(looked.findings if looked else ())], looked)


async def _pools(kube: Kube) -> tuple[Object, ...]:
    """The pools, for their decision logs; if they can't be read, another finding says so."""
    try:
        return (await kube.list(POOLS)).objects
    except (NotFoundError, RefusedError, KubeUnavailableError):
        return ()
