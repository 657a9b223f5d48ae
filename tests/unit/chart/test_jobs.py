"""The chart's jobs on an API server in memory: what they make, keep, and take back."""

import asyncio
import base64

import pytest
from click.testing import CliRunner

from dray.api.names import (
    ALLOCATION_GATE,
    DEDICATED_TAINT,
    DERIVED_FROM_LABEL,
    DRIVER,
    GPU_LABEL,
    MPS_DAEMON,
    NAME_LABEL,
    POOL_FINALIZER,
)
from dray.kube.memory import MemoryKube
from dray.kube.ports import NODES, PODS, POLICIES, POOLS, SLICES, TEMPLATES
from dray_claim_controller.identities.signing import AccountKey
from dray_cli.chart import registration, removal, secrets, verb
from dray_cli.chart.credentials import USERS, completed
from dray_cli.chart.removal import InUseError, refuse_while_in_use, undo_of, users_of
from dray_cli.operator_secret import OPERATOR, SECRETS, password_key, read_secret

NAMESPACE = "dray-system"


def test_missing_passwords_are_made_and_none_is_replaced():
    made = completed({})

    assert {password_key(user) for user in USERS} < made.keys()
    assert all(made[password_key(user)].startswith("p") for user in USERS)
    assert len({*made.values()}) == len(made)
    assert AccountKey(made["issuer-seed"]).public == made["issuer"]
    assert completed(made) == made
    lacking = {key: text for key, text in made.items() if key != "reader-password"}
    again = completed(lacking)
    assert again | {"reader-password": ""} == made | {"reader-password": ""}


def obj(name="x", *, labels=None, finalizers=None, **parts):
    metadata = {"name": name, "labels": labels or {}, "finalizers": finalizers or []}
    return {"metadata": metadata, **parts}


def test_only_what_dray_wrote_is_taken_back():
    theirs, ours = "example.com/theirs", POOL_FINALIZER
    for resource in (POOLS, POLICIES):
        undo = undo_of(resource, obj(finalizers=[theirs, ours]))
        assert undo is not None
        assert undo.patch == {"metadata": {"finalizers": [theirs]}}
        assert undo_of(resource, obj(finalizers=[theirs])) is None

    taints = [{"key": DEDICATED_TAINT, "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]
    undo = undo_of(NODES, obj(labels={GPU_LABEL: "true"}, spec={"taints": taints}))
    assert undo is not None
    assert undo.patch == {"metadata": {"labels": {GPU_LABEL: None}}, "spec": {"taints": taints[1:]}}
    assert undo_of(NODES, obj(spec={"taints": taints[1:]})) is None

    undo = undo_of(TEMPLATES, obj(labels={DERIVED_FROM_LABEL: "base"}))
    assert undo is not None
    assert undo.patch is None
    assert undo_of(TEMPLATES, obj()) is None
    assert undo_of(SLICES, obj(spec={"driver": DRIVER})) is not None
    assert undo_of(SLICES, obj(spec={"driver": "gpu.example.com"})) is None


def claim(driver=DRIVER, *pods):
    reserved = [{"resource": "pods", "name": name, "uid": name} for name in pods]
    results = [{"driver": driver, "pool": "n", "device": "d", "request": "r"}]
    return {
        "metadata": {"name": "c", "namespace": "team"},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved},
    }


def test_pods_that_hold_gpus_of_dray_are_found():
    assert [*users_of(claim(DRIVER, "a", "b"))] == ["team/a", "team/b"]
    assert [*users_of(claim("gpu.example.com", "a"))] == []
    assert [*users_of({"metadata": {"name": "c", "namespace": "team"}})] == []


async def test_an_uninstallation_is_refused_while_pods_use_gpus(monkeypatch):
    kube = MemoryKube()

    class Listed:
        objects = (claim(DRIVER, *(f"p{number}" for number in range(7))),)

    async def listing(*_, **__):
        return Listed

    monkeypatch.setattr(kube, "list", listing)
    with pytest.raises(InUseError, match=r"7 pods .*team/p0, .*team/p4, ….*Delete them"):
        await refuse_while_in_use(kube)


async def test_mps_daemons_end_with_the_installation_and_no_other_pod_does():
    kube = MemoryKube()
    for namespace, name, component in (
        (NAMESPACE, "daemon", MPS_DAEMON),
        (NAMESPACE, "other", "dray-webhook"),
        ("team", "theirs", MPS_DAEMON),
    ):
        metadata = {"name": name, "labels": {NAME_LABEL: component}}
        await kube.create(PODS, {"metadata": metadata, "spec": {"containers": []}}, namespace)
    await removal.end_mps_daemons(kube, NAMESPACE)
    left = [one["metadata"]["name"] for one in (await kube.list(PODS)).objects]
    assert sorted(left) == ["other", "theirs"]


def test_a_waiting_pod_is_known_by_its_gate():
    assert removal.is_gated({"spec": {"schedulingGates": [{"name": ALLOCATION_GATE}]}})
    assert not removal.is_gated({"spec": {"schedulingGates": [{"name": "theirs"}]}})
    assert not removal.is_gated({"spec": {}})


def test_every_webhook_gets_the_bundle_and_no_other_one_does():
    webhooks = [
        {"name": "a.dray", "clientConfig": {"caBundle": "new", "service": {}}},
        {"name": "b.dray", "clientConfig": {"service": {}}},
    ]
    assert registration.bundle_patch({"webhooks": webhooks}, "new") == [
        {"op": "test", "path": "/webhooks/1/name", "value": "b.dray"},
        {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "new"},
    ]
    assert registration.bundle_patch({"webhooks": webhooks[:1]}, "new") == []


async def test_secrets_are_made_once_kept_and_forgotten():
    kube = MemoryKube()
    await secrets.keep_credentials(kube, NAMESPACE)
    authorities = await secrets.keep_certificate(
        kube, NAMESPACE, secrets.NATS_TLS, "dray-nats", ("dray-nats",)
    )
    await secrets.keep_operator(kube, NAMESPACE, secrets.NATS, secrets.NATS_TLS, "tls://n:4222")
    before = await kube.get(SECRETS, secrets.NATS_TLS, NAMESPACE)
    passwords = await read_secret(kube, NAMESPACE, secrets.NATS)

    await secrets.keep_credentials(kube, NAMESPACE)
    assert await read_secret(kube, NAMESPACE, secrets.NATS) == passwords
    await secrets.keep_certificate(kube, NAMESPACE, secrets.NATS_TLS, "dray-nats", ("dray-nats",))
    assert await kube.get(SECRETS, secrets.NATS_TLS, NAMESPACE) == before
    assert before["type"] == "kubernetes.io/tls"
    operator = await read_secret(kube, NAMESPACE, OPERATOR)
    assert operator.keys() == {"url", "ca.crt", "reader-password", "recorder-password"}
    assert operator["ca.crt"] == authorities

    theirs = {"metadata": {"name": secrets.WEBHOOK_TLS, "namespace": NAMESPACE}, "data": {}}
    await kube.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", **theirs}, NAMESPACE)
    await removal.forget(kube, NAMESPACE, (secrets.NATS, secrets.NATS_TLS, secrets.WEBHOOK_TLS))
    left = [one["metadata"]["name"] for one in (await kube.list(SECRETS, NAMESPACE)).objects]
    assert sorted(left) == [OPERATOR, secrets.WEBHOOK_TLS]


async def test_a_lost_password_is_made_again_and_a_lost_key_is_removed():
    kube = MemoryKube()
    await secrets.keep_credentials(kube, NAMESPACE)
    lost = {"data": {"reader-password": None}}
    await kube.patch(SECRETS, secrets.NATS, lost, NAMESPACE)

    await secrets.keep_credentials(kube, NAMESPACE)

    assert (await read_secret(kube, NAMESPACE, secrets.NATS))["reader-password"].startswith("p")


def test_a_webhook_serves_once_a_replica_of_the_newest_version_is_ready():
    status = {"observedGeneration": 3, "updatedReplicas": 1, "availableReplicas": 1}
    deployment = {"metadata": {"generation": 3}, "status": status}

    assert registration.is_served(deployment)
    for name in status:
        lacking = {key: value for key, value in status.items() if key != name}
        assert not registration.is_served(deployment | {"status": lacking})
    assert not registration.is_served(deployment | {"metadata": {"generation": 4}})


@pytest.fixture
def kube():
    return MemoryKube()


@pytest.fixture
def prepare(kube, monkeypatch):
    """Runs ``dray chart prepare``; what it prints."""

    async def connect(*_, **__):
        return kube

    monkeypatch.setattr(verb, "connect", connect)

    def run(*arguments):
        done = CliRunner().invoke(verb.chart, ["prepare", *arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    return run


async def make_secret(kube, name, *, labels=None, **texts):
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels or {}}
    obj = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    await kube.create(SECRETS, obj, NAMESPACE)


def test_servers_load_certificates_of_cert_manager_too(kube, prepare, monkeypatch):
    asked = []

    async def reload(url, *, certificate, **_):
        asked.append((url, certificate))
        return True

    monkeypatch.setattr(secrets, "reload_if_outdated", reload)
    arguments = ("--no-certificates", "--nats-server=tls://n-0:4222", "--nats-url=tls://n:4222")
    assert "has no certificate yet" in prepare(*arguments)
    issued = {"ca.crt": "authority", "tls.crt": "renewed", "tls.key": "key"}
    asyncio.run(make_secret(kube, secrets.NATS_TLS, **issued))

    assert "tls://n-0:4222: reloads its certificate" in prepare(*arguments)

    assert asked == [("tls://n-0:4222", b"renewed")]
    operator = asyncio.run(read_secret(kube, NAMESPACE, OPERATOR))
    assert operator["ca.crt"] == "authority"


def test_before_an_upgrade_certificates_are_made_and_authorities_left_to_helm(
    kube, prepare, monkeypatch
):
    trusted = []

    async def trust(_, authorities):
        trusted.append(authorities)

    monkeypatch.setattr(registration, "trust", trust)
    arguments = ("--nats-url=tls://n:4222",)

    assert "Secret dray-webhook-tls: created" in prepare("--no-trust", *arguments)
    assert trusted == []
    prepare(*arguments)
    held = asyncio.run(read_secret(kube, NAMESPACE, secrets.WEBHOOK_TLS))
    assert trusted == [held["ca.crt"]]


def test_people_get_the_passwords_of_a_nats_that_is_not_drays(kube, prepare):
    arguments = ("--no-certificates", "--nats-url=tls://nats.example:4222")
    external = (*arguments, "--external-nats=ours", "--external-authorities=our-ca")
    asyncio.run(make_secret(kube, "ours", **{"reader-password": "r"}))
    assert "Secret ours: has no recorder-password, which" in prepare(*external)
    both = {"reader-password": "r", "recorder-password": "c"}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in both.items()}
    asyncio.run(kube.patch(SECRETS, "ours", {"data": encoded}, NAMESPACE))
    asyncio.run(make_secret(kube, "our-ca", **{"ca.crt": "authority"}))

    prepare(*external)

    operator = asyncio.run(read_secret(kube, NAMESPACE, OPERATOR))
    assert operator == {"url": "tls://nats.example:4222", "ca.crt": "authority", **both}
    assert asyncio.run(read_secret(kube, NAMESPACE, secrets.NATS)) == {}


async def test_secrets_that_cert_manager_made_go_too():
    kube = MemoryKube()
    for name in ("dray-ca", secrets.WEBHOOK_TLS):
        await make_secret(kube, name, labels=secrets.PART)
    await make_secret(kube, secrets.NATS_TLS)

    await removal.forget(kube, NAMESPACE, secrets.MADE)

    left = [one["metadata"]["name"] for one in (await kube.list(SECRETS, NAMESPACE)).objects]
    assert left == [secrets.NATS_TLS]
