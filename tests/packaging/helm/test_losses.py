"""What an installation loses and gets back: the store of NATS, a certificate, a node.

The tests are steps of one story.
"""

import base64
import datetime
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.packaging.helm.installation import (
    CHART,
    INSTALLED,
    NAMESPACE,
    RELEASE,
    SIMULATED,
    Cluster,
    CommandError,
    cluster,
    gpu_pod,
)
from tests.packaging.helm.load import under_load

from dray.runtime.certificates import expires_at, issue
from dray_cli.chart.secrets import WEBHOOK_TLS
from dray_cli.chart.verb import service_names

# The first time-out counts.
pytestmark = [pytest.mark.timeout(900), *INSTALLED, pytest.mark.long]

STORE_LOST_S = 90.0
"""A new server, readers that begin again, and a new epoch of each pool."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed() -> AsyncIterator[Cluster]:
    """A cluster with one server of NATS, whose store is not a volume."""
    async with cluster("losses") as made:
        await made.install(*SIMULATED)
        await made.ready()
        await made.apply(gpu_pod("before"))
        await made.running("before")
        yield made


async def test_a_lost_store_of_nats_is_built_again_from_kubernetes(installed: Cluster) -> None:
    (claim,) = await installed.objects("resourceclaims")
    await installed.kubectl("delete", "pod", "dray-nats-0", "-n", NAMESPACE, "--grace-period=0")
    began_s = time.monotonic()

    await installed.apply(gpu_pod("after", tflops="300"))
    await installed.running("after")

    took_s = time.monotonic() - began_s
    print(f"a pod got its GPU {took_s:.1f} s after the store of NATS was lost")
    assert took_s < STORE_LOST_S
    await installed.running("before")
    kept = await installed.objects("resourceclaim", claim["metadata"]["name"])
    assert kept[0]["status"]["allocation"] == claim["status"]["allocation"]
    other = [one for one in await installed.objects("resourceclaims") if one != kept[0]]
    devices = {device(one) for one in other}
    # 300 of a card's TFLOPS do not fit where another pod has 100.
    assert device(claim) not in devices


def device(claim: dict[str, Any]) -> tuple[str, str]:
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    return result["pool"], result["device"]


async def test_an_expired_certificate_is_not_loaded_and_its_successor_is(
    installed: Cluster,
) -> None:
    names = service_names("dray-webhook", NAMESPACE)
    expired = issue("somebody's CA", "dray-webhook", names, datetime.timedelta(minutes=-5))
    await write_certificate(installed, expired.authority, expired.certificate, expired.key)

    async def is_reported() -> bool:
        return "the new /etc/dray/tls/tls.crt expires at" in await logs(installed)

    await installed.until(is_reported, "the webhook sees the expired certificate")
    # What it served before is served on.
    await installed.apply(gpu_pod("meanwhile"))
    await installed.running("meanwhile")
    (pod, *_) = await webhooks(installed)

    await installed.kubectl(
        "create", "job", "--from=cronjob/dray-renewal", "renew", "-n", NAMESPACE
    )
    await installed.kubectl(
        "wait", "--for=condition=Complete", "job/renew", "-n", NAMESPACE, "--timeout=60s"
    )

    async def is_loaded() -> bool:
        (secret,) = await installed.objects("secret", WEBHOOK_TLS, "-n", NAMESPACE)
        held = base64.b64decode(secret["data"]["tls.crt"])
        return f'"expires_at": "{expires_at(held).isoformat()}"' in await logs(installed)

    await installed.until(is_loaded, "the webhook loads the new certificate")

    async def is_trusted() -> bool:
        try:
            await installed.apply(gpu_pod("renewed"))
        except CommandError:
            return False
        return True

    await installed.until(is_trusted, "the API server trusts the new certificate")
    (same, *_) = await webhooks(installed)
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]


async def test_an_upgrade_and_a_rollback_keep_a_certificate_that_was_made_again(
    installed: Cluster,
) -> None:
    """Helm has rendered the old authorities in both cases."""
    names = service_names("dray-webhook", NAMESPACE)
    expired = issue("another CA", "dray-webhook", names, datetime.timedelta(minutes=-5))
    await write_certificate(installed, expired.authority, expired.certificate, expired.key)
    for number, command in enumerate((
        ("upgrade", RELEASE, str(CHART), *SIMULATED),
        ("rollback", RELEASE, "1", "--force-conflicts"),
    )):  # fmt: skip
        await installed.helm(*command, "-n", NAMESPACE)

        async def is_trusted(name: str = f"trusted-{number}") -> bool:
            try:
                await installed.apply(gpu_pod(name, tflops="1", vram="1Gi"))
            except CommandError:
                return False
            return True

        await installed.until(is_trusted, f"the API server trusts the webhook after {command[0]}")


async def webhooks(installed: Cluster) -> list[Any]:
    selector = "app.kubernetes.io/name=dray-webhook"
    return await installed.objects("pods", "-n", NAMESPACE, "-l", selector)


async def logs(installed: Cluster) -> str:
    """Of all webhooks."""
    selector = "app.kubernetes.io/name=dray-webhook"
    return await installed.kubectl("logs", "-n", NAMESPACE, "-l", selector, "--tail=-1")


async def write_certificate(
    installed: Cluster, authority: bytes, certificate: bytes, key: bytes
) -> None:
    parts = {"ca.crt": authority, "tls.crt": certificate, "tls.key": key}
    data = {name: base64.b64encode(text).decode() for name, text in parts.items()}
    patch = json.dumps({"data": data})
    await installed.kubectl("patch", "secret", WEBHOOK_TLS, "-n", NAMESPACE, "-p", patch)


async def test_a_node_is_drained_and_comes_back_under_load(installed: Cluster) -> None:
    await installed.kubectl("delete", "pods", "--all", "-n", "default")
    async with under_load(installed, per_s=2) as load:
        await installed.kubectl(
            "drain", "sim-2", "--ignore-daemonsets", "--delete-emptydir-data", "--force",
            "--pod-selector=app.kubernetes.io/part-of=dray", "--timeout=120s",
        )  # fmt: skip
        await load.until_more_run(10)
        await installed.kubectl("uncordon", "sim-2")
        await installed.ready()
        await load.until_more_run(10)
