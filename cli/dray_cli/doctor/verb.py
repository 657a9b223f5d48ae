"""``dray doctor``: look at cluster and bus, and say what is missing and what to do."""

import asyncio

import click

from dray.kube.ports import POOLS, Kube, NotFoundError, Object
from dray.kube.probe import probe
from dray_cli.doctor import bus as on_bus
from dray_cli.doctor.capabilities import capabilities, disagreement
from dray_cli.doctor.cluster import look_at_cluster
from dray_cli.doctor.findings import Finding, as_json, broken, lines
from dray_cli.output import output_option, print_json
from dray_cli.target import (
    connect_bus,
    connect_kube,
    kubeconfig_of,
    kubeconfig_option,
    nats_option,
    stack_of,
)


@click.command()
@click.option(
    "-n",
    "--namespace",
    default="default",
    show_default=True,
    help="Where dry runs are made; nothing is stored.",
)
@kubeconfig_option
@nats_option
@output_option
def doctor(namespace: str, kubeconfig: str | None, nats: str | None, output: str) -> None:
    """Say what the cluster keeps and whether dray stands on it: webhook, slices, pools, streams.

    What Kubernetes can do is found by asking it, with dry runs, never from its version.
    Exit codes: 0 nothing is broken, 1 something is.
    """
    findings = asyncio.run(_look(kubeconfig, nats, namespace))
    if output == "json":
        print_json(as_json(findings))
    else:
        click.echo("\n".join(lines(findings)))
    raise SystemExit(1 if broken(findings) else 0)


async def _look(kubeconfig: str | None, nats: str | None, namespace: str) -> list[Finding]:
    kube = await connect_kube(kubeconfig)
    try:
        probed = await probe(kube, namespace, revision=1)
        findings = [*capabilities(probed), *await look_at_cluster(kube, namespace)]
        bus = await connect_bus(nats, stack_of(kubeconfig_of(kubeconfig)))
        if bus is None:
            text = "no NATS to be reached; name it with --nats or DRAY_NATS__URL"
            return [*findings, Finding(on_bus.AREA, "connection", "unseen", text)]
        try:
            published = await on_bus.published_probe(bus)
            differing = disagreement(probed, published) if published else None
            seen = await on_bus.look_at_bus(bus, await _pools(kube))
            return [*findings, *([differing] if differing else []), *seen]
        finally:
            await bus.close()
    finally:
        await kube.close()


async def _pools(kube: Kube) -> tuple[Object, ...]:
    try:
        return (await kube.list(POOLS)).objects
    except NotFoundError:
        return ()
