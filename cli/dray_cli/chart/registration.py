"""The cluster-wide parts of an installation: custom resources, and the authorities of the
registered webhook."""

import base64
from collections.abc import Sequence
from pathlib import Path

import click
import yaml

from dray.api.names import API_GROUP
from dray.kube.ports import CRDS, Kube, NotFoundError, Object, Resource
from dray.runtime.backoff import Backoff

_ADMISSION = "admissionregistration.k8s.io"
_MUTATING = Resource(
    _ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)
_VALIDATING = Resource(
    _ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False
)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
WEBHOOK = "dray-webhook"


def read_custom_resources(folder: Path) -> list[Object]:
    """The CustomResourceDefinitions of the chart's folder."""
    texts = [path.read_text("utf-8") for path in sorted(folder.glob("*.yaml"))]
    return [one for text in texts for one in yaml.safe_load_all(text)]


async def apply_custom_resources(kube: Kube, wanted: Sequence[Object]) -> None:
    """Create missing CRDs, and update dray's own ones to this release: Helm only creates CRDs.

    CRDs of other projects, such as Volcano, stay as they are.
    """
    for one in wanted:
        await _apply(kube, one)


async def _apply(kube: Kube, wanted: Object) -> None:
    name = wanted["metadata"]["name"]
    try:
        held = await kube.get(CRDS, name)
    except NotFoundError:
        await kube.create(CRDS, wanted)
        click.echo(f"CustomResourceDefinition {name}: created")
        return
    if wanted["spec"]["group"] != API_GROUP:
        click.echo(f"CustomResourceDefinition {name}: is there")
        return
    after = await kube.patch(CRDS, name, {"spec": wanted["spec"]})
    changed = after["metadata"].get("generation") != held["metadata"].get("generation")
    click.echo(f"CustomResourceDefinition {name}: {'updated' if changed else 'nothing to do'}")


async def trust(kube: Kube, authorities: str) -> None:
    """Make the API server trust the webhook's certificates, if the webhook is registered."""
    bundle = base64.b64encode(authorities.encode()).decode()
    for resource in (_MUTATING, _VALIDATING):
        try:
            held = await kube.get(resource, WEBHOOK)
        except NotFoundError:
            click.echo(f"{resource.kind} {WEBHOOK}: not registered yet")
            continue
        patch = bundle_patch(held, bundle)
        if patch:
            await kube.patch(resource, WEBHOOK, patch, kind="json")
        click.echo(f"{resource.kind} {WEBHOOK}: {'updated' if patch else 'nothing to do'}")


async def wait_until_served(kube: Kube, namespace: str) -> None:
    """Wait until a webhook of this release is ready: before that, pods that ask for dray would be
    refused."""
    backoff = Backoff(0.2, 1.0)
    while not is_served(await kube.get(DEPLOYMENTS, WEBHOOK, namespace)):
        await backoff.pause()
    click.echo(f"Deployment {WEBHOOK}: ready")


def is_served(deployment: Object) -> bool:
    """Whether the newest version of a Deployment has a replica that is ready."""
    status = deployment.get("status") or {}
    newest = deployment["metadata"].get("generation")
    is_newest = status.get("observedGeneration") == newest
    return bool(is_newest and status.get("updatedReplicas") and status.get("availableReplicas"))


def bundle_patch(configuration: Object, bundle: str) -> Sequence[dict[str, object]]:
    """The JSON patch that gives every webhook the bundle; it tests the webhooks' names first."""
    patch: list[dict[str, object]] = []
    for number, webhook in enumerate(configuration.get("webhooks") or ()):
        if webhook["clientConfig"].get("caBundle") != bundle:
            path = f"/webhooks/{number}"
            patch += [
                {"op": "test", "path": f"{path}/name", "value": webhook["name"]},
                {"op": "add", "path": f"{path}/clientConfig/caBundle", "value": bundle},
            ]
    return patch
