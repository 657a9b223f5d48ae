"""An installation on NATS that is not the chart's: by URL, with TLS, passwords and authority of its
own.

The tests are steps of one story.
"""

import base64
import datetime
import json
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
import yaml
from tests.packaging.helm.installation import (
    CHART,
    INSTALLED,
    NAMESPACE,
    SIMULATED,
    WORKLOADS,
    Cluster,
    cluster,
    gpu_pod,
    run,
)

from dray.runtime.certificates import Issued, issue
from dray_cli.chart import credentials
from dray_cli.operator_secret import OPERATOR, password_key

pytestmark = [*INSTALLED, pytest.mark.long]

BUS = "bus"
"""The namespace of NATS."""
HOST = f"nats.{BUS}.svc"
PASSWORDS, AUTHORITIES = "our-nats", "our-ca"
EXISTING = (
    *("--set", "nats.enabled=false"),
    *("--set", f"nats.external.url=tls://{HOST}:4222"),
    *("--set", f"nats.external.credentialsSecret={PASSWORDS}"),
    *("--set", f"nats.external.caSecret={AUTHORITIES}"),
)
NATS_CONF = """
port: 4222
max_payload: 8MB
jetstream { store_dir: /data, max_file_store: 1GB, sync_interval: always }
tls { cert_file: /etc/nats/tls.crt, key_file: /etc/nats/tls.key }
include dray.conf
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed() -> AsyncIterator[Cluster]:
    """dray on such a NATS; who uses the command line reaches it by a port-forward."""
    async with cluster("existing-nats", nodes=1) as made:
        keys = credentials.completed({})
        served = issue("our CA", "nats", (HOST, "127.0.0.1"), datetime.timedelta(days=9))
        for namespace in (BUS, NAMESPACE):
            await made.kubectl("create", "namespace", namespace)
        await made.apply(*nats(keys, served))
        theirs = {key: text for key, text in keys.items() if key != "admin-password"}
        await made.apply(
            secret(NAMESPACE, PASSWORDS, theirs),
            secret(NAMESPACE, AUTHORITIES, {"ca.crt": served.authority.decode()}),
        )
        await made.install(*SIMULATED, *EXISTING)
        await made.ready([one for one in WORKLOADS if "nats" not in one])
        yield made


def nats(keys: Mapping[str, str], served: Issued) -> list[str]:
    """The manifests of one server."""
    variables = {
        f"DRAY_NATS_{user.upper().replace('-', '_')}_PASSWORD": keys[password_key(user)]
        for user in credentials.USERS
    }
    variables["DRAY_NATS_ISSUER"] = keys["issuer"]
    files = {
        "nats.conf": NATS_CONF,
        "dray.conf": (CHART / "files" / "dray.conf").read_text(),
        "tls.crt": served.certificate.decode(),
        "tls.key": served.key.decode(),
    }
    image = yaml.safe_load((CHART / "values.yaml").read_text())["nats"]["image"]
    container = {
        "name": "nats",
        "image": f"{image['repository']}:{image['tag']}",
        "args": ["--config", "/etc/nats/nats.conf"],
        "envFrom": [{"secretRef": {"name": "variables"}}],
        "volumeMounts": [
            {"name": "files", "mountPath": "/etc/nats"},
            {"name": "data", "mountPath": "/data"},
        ],
    }
    volumes = [
        {"name": "files", "secret": {"secretName": "files"}},
        {"name": "data", "emptyDir": {}},
    ]
    metadata = {"name": "nats", "namespace": BUS, "labels": {"app": "nats"}}
    spec = {"containers": [container], "volumes": volumes}
    service = {"selector": metadata["labels"], "ports": [{"port": 4222}]}
    return [
        secret(BUS, "variables", variables),
        secret(BUS, "files", files),
        manifest("Pod", metadata, spec=spec),
        manifest("Service", metadata, spec=service),
    ]


def secret(namespace: str, name: str, texts: Mapping[str, str]) -> str:
    """A Secret's manifest."""
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    metadata = {"name": name, "namespace": namespace}
    return manifest("Secret", metadata, data=data)


def manifest(kind: str, metadata: Mapping[str, Any], **parts: Any) -> str:
    """An object as YAML."""
    return yaml.safe_dump({"apiVersion": "v1", "kind": kind, "metadata": dict(metadata), **parts})


async def test_a_pod_gets_its_gpu_and_the_chart_runs_no_nats(installed: Cluster) -> None:
    await installed.apply(gpu_pod("first"))
    await installed.running("first")

    assert await installed.objects("statefulsets", "-n", NAMESPACE) == []


async def test_the_command_line_reaches_the_bus_by_a_kubeconfig_alone(installed: Cluster) -> None:
    flags = ("-o", "json", "--kubeconfig", installed.kubeconfig)
    doctor = json.loads(await run([sys.executable, "-m", "dray_cli", "doctor", *flags]))

    assert doctor["healthy"]
    found = {one["subject"]: one["grade"] for one in doctor["findings"]}
    assert found["decision log of default"] == "ok"


async def test_an_uninstallation_leaves_the_secrets_of_that_nats(installed: Cluster) -> None:
    await installed.kubectl("delete", "pod", "first")
    await installed.uninstall()

    left = {one["metadata"]["name"] for one in await installed.objects("secrets", "-n", NAMESPACE)}
    assert {PASSWORDS, AUTHORITIES} <= left
    assert OPERATOR not in left
