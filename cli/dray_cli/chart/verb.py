"""``dray chart``: the commands of the chart's jobs. The only place that opens an adapter."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from dray.api.names import DRAY_NAMESPACE
from dray.kube.api import connect
from dray.kube.ports import Kube
from dray_cli.chart import registration, removal, secrets

_NATS_SERVICE, _WEBHOOK_SERVICE = "dray-nats", "dray-webhook"

namespace_option = click.option(
    "--namespace", envvar="DRAY_NAMESPACE", default=DRAY_NAMESPACE, help="dray's own namespace."
)


@click.group()
def chart() -> None:
    """Run the Helm chart's jobs. The chart runs these commands; users need not."""


@chart.command()
@namespace_option
@click.option(
    "--crds",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of this release's CustomResourceDefinitions.",
)
@click.option(
    "--external-nats",
    metavar="SECRET",
    help="Secret with the passwords of a NATS that is no part of the installation.",
)
@click.option(
    "--external-authorities",
    metavar="SECRET",
    help="Secret with the authorities of that NATS' certificate, in ca.crt.",
)
@click.option(
    "--certificates/--no-certificates", default=True, help="Whether to issue certificates here."
)
@click.option(
    "--nats-server",
    "nats_servers",
    multiple=True,
    metavar="URL",
    help="NATS server that must reload a renewed certificate; repeatable.",
)
@click.option(
    "--trust/--no-trust",
    default=True,
    help="Whether to have the API server trust the webhook's certificate now.",
)
@click.option("--wait", is_flag=True, help="Wait until the webhook is ready.")
@click.option("--nats-url", default="", help="NATS URL that users' command line connects to.")
def prepare(
    namespace: str,
    crds: Path | None,
    external_nats: str | None,
    external_authorities: str | None,
    certificates: bool,
    trust: bool,
    wait: bool,
    nats_servers: tuple[str, ...],
    nats_url: str,
) -> None:
    """Create custom resources, passwords and certificates, and renew those that expire.

    Runs before and after each installation and upgrade, and daily. Valid objects stay unchanged.
    """

    custom_resources = registration.read_custom_resources(crds) if crds is not None else []
    nats = external_nats is None

    async def work(kube: Kube) -> None:
        await registration.apply_custom_resources(kube, custom_resources)
        if nats:
            await secrets.keep_credentials(kube, namespace)
        if certificates:
            await _keep_certificates(kube, namespace, nats=nats, trust=trust)
        if wait:
            await registration.wait_until_served(kube, namespace)
        # cert-manager has issued its certificates by now.
        await secrets.load_in_servers(kube, namespace, nats_servers)
        passwords = external_nats or secrets.NATS
        authorities = external_authorities if external_nats else secrets.NATS_TLS
        await secrets.keep_operator(kube, namespace, passwords, authorities, nats_url)

    _run(work)


async def _keep_certificates(kube: Kube, namespace: str, *, nats: bool, trust: bool) -> None:
    """Renew the certificates of the webhook, and of NATS if it is part of the installation."""
    names = service_names(_WEBHOOK_SERVICE, namespace)
    authorities = await secrets.keep_certificate(
        kube, namespace, secrets.WEBHOOK_TLS, _WEBHOOK_SERVICE, names
    )
    if trust:
        await registration.trust(kube, authorities)
    if nats:
        names = (*service_names(_NATS_SERVICE, namespace), "localhost", "127.0.0.1")
        await secrets.keep_certificate(kube, namespace, secrets.NATS_TLS, _NATS_SERVICE, names)


@chart.command()
@namespace_option
def uninstall(namespace: str) -> None:
    """Remove what dray wrote, before it is uninstalled; refused while pods use its GPUs."""

    async def work(kube: Kube) -> None:
        await removal.refuse_while_in_use(kube)
        await removal.stop_controllers(kube, namespace)
        await removal.take_back(kube)

    _run(work)


@chart.command()
@namespace_option
def forget(namespace: str) -> None:
    """Delete what an uninstallation leaves: ResourceSlices, and objects that these jobs made."""

    async def work(kube: Kube) -> None:
        await removal.take_back_slices(kube, namespace)
        await removal.end_mps_daemons(kube, namespace)
        await removal.forget(kube, namespace, secrets.MADE)

    _run(work)


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """The DNS names of a Service, and of the pods behind a headless one of the same name."""
    whole = f"{service}.{namespace}.svc"
    return (service, f"{service}.{namespace}", whole, f"*.{service}-pods.{namespace}.svc")


def _run(work: Callable[[Kube], Awaitable[None]]) -> None:
    async def run() -> None:
        kube = await connect(None, user_agent="dray-chart")
        try:
            await work(kube)
        finally:
            await kube.close()

    asyncio.run(run())
