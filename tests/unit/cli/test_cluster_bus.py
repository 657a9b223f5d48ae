"""The bus of an installation is found by its Secret, and reached through its Service's pods."""

import base64
from pathlib import Path
from typing import Any

import pytest

from dray.bus.ports import BusUnavailableError
from dray.bus.topology import READER, RECORDER
from dray.kube.memory import MemoryKube
from dray.kube.ports import PODS, Object, RefusedError
from dray_cli import cluster_bus
from dray_cli.cluster_bus import (
    SERVICES,
    BusAddress,
    NoBusAddressError,
    installed_address,
    ready_pod,
)
from dray_cli.operator_secret import MUTATING_WEBHOOKS, OPERATOR, SECRETS

URL = "tls://dray-nats.dray-system.svc:4222"


def address(url: str = URL) -> BusAddress:
    return BusAddress(url, "reader", "secret", "PEM", "NATS")


async def with_secret(namespace: str, **data: str) -> MemoryKube:
    kube = MemoryKube()
    data = {"url": URL, "ca.crt": "PEM", "reader-password": "a", "recorder-password": "b"} | data
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    await kube.create(SECRETS, {"metadata": {"name": OPERATOR}, "data": encoded}, namespace)
    return kube


@pytest.mark.parametrize(("role", "password"), [(READER, "a"), (RECORDER, "b")])
async def test_the_secret_has_address_authorities_and_each_roles_password(
    role: str, password: str
) -> None:
    found = await installed_address(await with_secret("dray-system"), role)

    assert (found.url, found.user, found.password, found.authorities) == (
        URL,
        role,
        password,
        "PEM",
    )


async def test_another_namespace_is_that_of_the_registered_webhook() -> None:
    kube = await with_secret("gpu")
    service = {"name": "dray-webhook", "namespace": "gpu"}
    webhook: Object = {"name": "pods", "clientConfig": {"service": service}}
    await kube.create(
        MUTATING_WEBHOOKS, {"metadata": {"name": "dray-webhook"}, "webhooks": [webhook]}
    )

    assert (await installed_address(kube, READER)).where == "NATS of the installation in gpu"


async def test_another_namespace_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAY_NAMESPACE", "gpu")

    assert (await installed_address(await with_secret("gpu"), READER)).password == "a"


async def test_a_cluster_without_dray_says_what_was_looked_for() -> None:
    with pytest.raises(NoBusAddressError, match=r"no Secret dray-operator in dray-system: is dray"):
        await installed_address(MemoryKube(), READER)


async def test_who_may_not_read_the_secret_is_sent_to_those_who_grant_it() -> None:
    class Refusing(MemoryKube):
        async def get(self, *_: Any, **__: Any) -> Object:
            raise RefusedError("forbidden", 403)

    with pytest.raises(NoBusAddressError, match=r"may not read the Secret dray-operator.*role of"):
        await installed_address(Refusing(), READER)


@pytest.mark.parametrize(
    ("url", "service"),
    [
        (URL, ("dray-system", "dray-nats", 4222)),
        ("nats://n.gpu.svc.cluster.local:4333,nats://m.gpu.svc:1", ("gpu", "n", 4333)),
        ("nats://n.gpu.svc", ("gpu", "n", 4222)),
        ("tls://nats.example.com:4222", None),
        ("nats://10.0.0.1:4222", None),
    ],
)
def test_only_services_of_the_cluster_are_reached_through_it(url: str, service: Any) -> None:
    assert address(url).service == service


def test_the_scheme_stays_behind_a_local_port() -> None:
    assert address().through(5000) == "tls://127.0.0.1:5000"


async def with_pods(**ready: str) -> MemoryKube:
    kube = MemoryKube()
    ports = [{"name": "nats", "port": 4222, "targetPort": "client"}]
    spec = {"selector": {"app": "nats"}, "ports": ports}
    await kube.create(SERVICES, {"metadata": {"name": "dray-nats"}, "spec": spec}, "ns")
    for name, status in ready.items():
        container = {"name": "nats", "ports": [{"name": "client", "containerPort": 4333}]}
        pod = {
            "metadata": {"name": name, "labels": {"app": "nats"}},
            "spec": {"containers": [container]},
        }
        await kube.create(PODS, pod, "ns")
        conditions = [{"type": "Ready", "status": status}]
        await kube.patch(
            PODS, name, {"status": {"conditions": conditions}}, "ns", subresource="status"
        )
    return kube


async def test_the_first_ready_pod_of_the_service_is_taken_with_its_containers_port() -> None:
    kube = await with_pods(a="False", c="True", b="True")

    assert await ready_pod(kube, "ns", "dray-nats", 4222) == ("b", 4333)


async def test_a_service_without_a_ready_pod_says_how_to_look() -> None:
    kube = await with_pods(a="False")

    with pytest.raises(BusUnavailableError, match=r"none of the 1 pods.*get pods -n ns -l app=nat"):
        await ready_pod(kube, "ns", "dray-nats", 4222)


def test_the_flag_goes_before_the_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authorities = tmp_path / "ca.crt"
    authorities.write_text("PEM")
    for name, value in {"USER": "me", "PASSWORD": "p", "CA_FILE": str(authorities)}.items():
        monkeypatch.setenv(f"DRAY_NATS__{name}", value)

    found = cluster_bus._known_address("no.kubeconfig", "tls://nats:4222", READER)

    assert found == BusAddress("tls://nats:4222", "me", "p", "PEM", "NATS at tls://nats:4222")
