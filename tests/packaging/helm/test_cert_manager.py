"""An installation whose certificates a real cert-manager issues, since it is there.

The tests are steps of one story.
"""

import asyncio
import base64
import json
import os
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
import pytest_asyncio
from tests.packaging.helm.installation import (
    INSTALLED,
    NAMESPACE,
    SIMULATED,
    Cluster,
    cluster,
    gpu_pod,
)
from tests.packaging.helm.load import under_load

from tools.cert_manager import build_cert_manager, custom_resources

# The first time-out counts: cert-manager may have to be built.
pytestmark = [pytest.mark.timeout(1200), *INSTALLED, pytest.mark.long]

HTTPS, NATS = 8443, 4222
SERVERS = {"dray-webhook": HTTPS, "dray-nats": NATS}
"""By certificate, the port on which its server's pods show it."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """A cluster with cert-manager, and then dray, as ``helm install`` brings it."""
    program, crds = await build_cert_manager(print), await custom_resources(print)
    log = tmp_path_factory.mktemp("cert-manager") / "log"
    async with cluster("cert-manager", nodes=1) as made:
        await made.kubectl("apply", "--server-side", "-f", str(crds))
        await made.kubectl("wait", "--for=condition=Established", "crd", "--all")
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                str(program),
                stdout=output,
                stderr=output,
                env=os.environ | {"KUBECONFIG": made.kubeconfig},
            )
            try:
                await made.install(*SIMULATED)
                await made.ready()
                yield made
            finally:
                process.terminate()
                await process.wait()


async def issued(installed: Cluster, certificate: str, file: str = "tls.crt") -> str:
    """A file of its Secret."""
    (found,) = await installed.objects("certificate", certificate, "-n", NAMESPACE)
    name = found["spec"]["secretName"]
    (secret,) = await installed.objects("secret", name, "-n", NAMESPACE)
    return base64.b64decode(secret["data"][file]).decode()


async def served(installed: Cluster, certificate: str) -> set[str]:
    """What the ready pods of its server show."""
    selector = ("-l", f"app.kubernetes.io/name={certificate}")
    shown = _shown_by_nats if certificate == "dray-nats" else _shown_by_webhook
    pods = await installed.objects("pods", "-n", NAMESPACE, *selector)
    return {await asyncio.to_thread(shown, one["status"]["podIP"]) for one in pods}


def _shown_by_webhook(address: str) -> str:
    return ssl.get_server_certificate((address, HTTPS))


def _shown_by_nats(address: str) -> str:
    """A server of NATS greets before it begins with TLS."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((address, NATS)) as connection:
        connection.recv(4096)
        with context.wrap_socket(connection) as tls:
            return ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True) or b"")


async def renew(installed: Cluster, certificate: str) -> str:
    """Have cert-manager issue it again, as ``cmctl renew`` does; the new certificate."""
    before = await issued(installed, certificate)
    (found,) = await installed.objects("certificate", certificate, "-n", NAMESPACE)
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    asked = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered"}
    conditions = [*found["status"]["conditions"], asked | {"lastTransitionTime": now}]
    patch = json.dumps({"status": {"conditions": conditions}})
    await installed.kubectl(
        "patch", "certificate", certificate, "-n", NAMESPACE, "--subresource=status",
        "--type=merge", "-p", patch,
    )  # fmt: skip

    async def is_new() -> str:
        after = await issued(installed, certificate)
        return after if after != before else ""

    return str(await installed.until(is_new, f"cert-manager issues {certificate} again"))


async def test_cert_manager_issues_what_the_chart_serves(installed: Cluster) -> None:
    await installed.kubectl(
        "wait", "--for=condition=Ready", "certificate", "--all", "-n", NAMESPACE
    )
    for certificate in SERVERS:
        assert await served(installed, certificate) == {await issued(installed, certificate)}
    await installed.apply(gpu_pod("first"))
    await installed.running("first")


async def test_the_api_server_gets_its_authority(installed: Cluster) -> None:
    authority = await issued(installed, "dray-webhook", "ca.crt")
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        (found,) = await installed.objects(kind, "dray-webhook")
        bundles = {one["clientConfig"].get("caBundle") for one in found["webhooks"]}
        assert [base64.b64decode(one).decode() for one in bundles] == [authority]


async def test_renewed_certificates_are_loaded_without_a_failed_admission(
    installed: Cluster,
) -> None:
    """The authority's, too. The daily job has NATS load its own, once the kubelet brought it."""
    pods = await started(installed)
    numbers = count()
    async with under_load(installed, per_s=2) as load:
        await renew(installed, "dray-ca")
        wanted = {name: await renew(installed, name) for name in SERVERS}

        async def is_served() -> bool:
            job = f"renew-{next(numbers)}"
            await installed.kubectl(
                "create", "job", "--from=cronjob/dray-renewal", job, "-n", NAMESPACE
            )
            await installed.kubectl(
                "wait", "--for=condition=Complete", f"job/{job}", "-n", NAMESPACE, "--timeout=60s"
            )
            return all([await served(installed, name) == {wanted[name]} for name in SERVERS])

        await installed.until(is_served, "webhook and NATS serve the renewed certificates")
        await load.until_more_run(10)
    assert await started(installed) == pods


async def started(installed: Cluster) -> set[tuple[str, int]]:
    """Names of the servers' pods, and how often they were restarted."""
    every: list[Any] = []
    for certificate in SERVERS:
        selector = ("-l", f"app.kubernetes.io/name={certificate}")
        every += await installed.objects("pods", "-n", NAMESPACE, *selector)
    return {
        (one["metadata"]["name"], container["restartCount"])
        for one in every
        for container in one["status"]["containerStatuses"]
    }


async def test_an_uninstallation_leaves_no_secret(installed: Cluster) -> None:
    await installed.kubectl("delete", "pod", "first")
    await installed.uninstall()

    assert "dray" not in await installed.kubectl("get", "secrets", "-n", NAMESPACE, "-o", "name")
