"""The webhook as a process: real nats-server, and an API server that calls it over TLS."""

import asyncio
import json
import ssl
from pathlib import Path

import aiohttp
import prometheus_client
import pytest
from tests.integration.webhook.surroundings import (
    EXACTLY,
    P,
    admin,
    answer_lookup,
    client_of,
    program,
    publish_facts,
    real,
    sandbox,
)

from dray.bus import jetstream
from dray.bus.readings import ReadingServer
from dray.bus.topology import EVENTS_STREAM
from dray.messages.base import decode
from dray.messages.events import PodRequested
from dray.messages.rpc import LOOKUP_SUBJECT
from dray_sandbox.chart import admission_policies, refused_claim
from dray_sandbox.nats_server import start_nats
from dray_sandbox.probes import answers
from dray_sandbox.processes import Runner
from dray_sandbox.tcp_ports import free_port
from dray_webhook.decisions.registration import probe_pod, webhook_configurations
from dray_webhook.decisions.review import AdmissionAnswer
from dray_webhook.service.server import AdmissionServer


def pod(name: str, pool: str = "shared", **annotations: str) -> dict[str, object]:
    asked = {"tflops-request": "100", "vram-request": "16Gi", "gpupool": pool, **annotations}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {P + key: text for key, text in asked.items()}},
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    }


CLAIMS_API = "apis/resource.k8s.io/v1"


async def _until(condition) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - readiness and streams are asked for
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "api_server",
    [
        pytest.param(sandbox, id="sandbox"),
        pytest.param(real, id="real", marks=[pytest.mark.real, pytest.mark.timeout(600)]),
    ],
)
async def test_a_pod_is_admitted_through_an_api_server(tmp_path, api_server):
    runner = Runner(tmp_path / "logs")
    nats = await start_nats(runner, tmp_path)
    bus = await jetstream.connect(nats.url, name="test", user="admin", password=admin(nats))
    health, port = free_port(), free_port()
    readyz = f"http://127.0.0.1:{health}/readyz"
    serving = asyncio.gather(
        bus.serve(LOOKUP_SUBJECT, answer_lookup, queue="claim-controller"),
        ReadingServer(bus).run(),
    )
    try:
        await runner.start(program(nats, health, port, tmp_path / "certificates"))
        async with aiohttp.ClientSession() as client, client.get(readyz) as http:
            assert http.status == 503
            assert "no pools, policies" in (await http.json())["checks"]["cache"]
        await publish_facts(bus)
        await _until(answers(readyz))

        async with api_server(tmp_path / "api", runner) as api, client_of(*api) as client:
            ca = (tmp_path / "certificates" / "ca.crt").read_bytes()
            configurations = webhook_configurations(f"https://127.0.0.1:{port}", ca)
            for obj in (*admission_policies(), *reversed(configurations)):
                kind = obj["kind"].lower() + "s"
                path = f"/apis/{obj['apiVersion']}/{kind.replace('policys', 'policies')}"
                async with client.post(path, json=obj) as http:
                    assert http.status == 201, await http.text()
            await _until(lambda: _is_denied(client, probe_pod()))
            await _until(lambda: _is_denied(client, refused_claim(), "ValidatingAdmissionPolicy"))

            stored = await _created(client, pod("train"), 201)
            await _check_admitted(bus, stored)
            stored = await _created(client, pod("late", "late"), 201)
            assert stored["metadata"]["annotations"][P + "gpupool"] == "late"
            denial = await _created(client, pod("bad", **{"qos": "best", "gpu-count": "0"}), 400)
            assert "2 errors" in denial["message"]
            plain = pod("plain")
            plain["metadata"]["annotations"] = {}
            assert "resourceClaims" not in (await _created(client, plain, 201))["spec"]

            await _check_protected(client)
            await _check_claims(client)
            await _check_late_annotations(client, tmp_path / "certificates")

            runner.pause("nats-server")
            stored = await _created(client, pod("in-the-dark"), 201)
            assert stored["spec"]["resourceClaims"]
            runner.resume("nats-server")
            await _until(lambda: _last_event_is(bus, "in-the-dark"))
            await runner.stop("webhook")
            await _check_updates_without_a_webhook(client)
    finally:
        serving.cancel()
        await bus.close()
        await runner.stop_all()
    assert json.loads((tmp_path / "logs" / "webhook.log").read_text().splitlines()[-1]).get(
        "event"
    ) == ("stopped")


async def _created(client, obj, status):
    async with client.post("/api/v1/namespaces/default/pods", json=obj) as http:
        body = await http.json()
    assert http.status == status, str(body)
    return body


async def _is_denied(client, obj, by="admission webhook") -> bool:
    """Asked dry: a real server calls a webhook a moment after its configuration is stored."""
    group, plural = ("api/v1", "pods") if obj["kind"] == "Pod" else (CLAIMS_API, "resourceclaims")
    path = f"/{group}/namespaces/default/{plural}?dryRun=All"
    async with client.post(path, json=obj) as http:
        return by in (await http.json()).get("message", "")


async def _is_let_in(client, obj) -> bool:
    return not await _is_denied(client, obj)


async def _check_admitted(bus, stored) -> None:
    delivered = await anext(aiter(bus.read(EVENTS_STREAM)))
    event = decode(delivered, PodRequested)
    annotations = stored["metadata"]["annotations"]
    assert stored["spec"]["schedulerName"] == "default-scheduler"
    assert stored["spec"]["schedulingGates"] == [{"name": P + "allocation"}]
    assert stored["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] == event.template
    assert annotations[P + "request-id"] == event.request_id
    assert annotations[P + "traceparent"] == delivered.headers["traceparent"]


async def _check_protected(client) -> None:
    """What dray wrote on a pod is put back; a lifted gate passes."""
    pod = "/api/v1/namespaces/default/pods/train"
    headers = {"Content-Type": "application/merge-patch+json"}
    again = {"spec": {"schedulerName": "tensor-fusion-scheduler"}}
    shape, count = ({"metadata": {"annotations": {P + n: "2"}}} for n in ("shape", "gpu-count"))
    for patch, status in ((shape, 200), (count, 422), (again, 200)):
        async with client.patch(pod, data=json.dumps(patch), headers=headers) as http:
            body = await http.json()
        assert http.status == status, str(body)
    async with client.get(pod) as http:
        annotations = (await http.json())["metadata"]["annotations"]
    assert annotations[P + "shape"].startswith("{")
    assert P + "gpu-count" not in annotations


async def _check_updates_without_a_webhook(client) -> None:
    """What may change does, and the rest is refused all the same."""
    headers = {"Content-Type": "application/merge-patch+json"}
    for path in (
        "/api/v1/namespaces/default/pods/train",
        f"/{CLAIMS_API}/namespaces/default/resourceclaims/mine",
    ):
        for name, status in ((P + "void", 422), ("example.com/note", 200)):
            patch = json.dumps({"metadata": {"annotations": {name: "10"}}})
            async with client.patch(path, data=patch, headers=headers) as http:
                assert http.status == status, await http.text()


async def _check_claims(client) -> None:
    """Hand-written claims are mapped, then fenced; nobody tolerates the owner taint."""
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    exactly = {**EXACTLY, "capacity": {"requests": {"tflops": "100"}}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "mine"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    async with client.post(path, json=claim) as http:
        body = await http.json()
    assert http.status == 201, body
    stored = body["spec"]["devices"]["requests"][0]["exactly"]
    assert stored["capacity"]["requests"] == {"virtual_tflops": "100"}
    headers = {"Content-Type": "application/merge-patch+json"}
    for name, status in ((P + "void", 422), ("example.com/note", 200)):
        patch = {"metadata": {"annotations": {name: "9"}}}
        async with client.patch(f"{path}/mine", data=json.dumps(patch), headers=headers) as http:
            body = await http.json()
        assert http.status == status, str(body)
    exactly["tolerations"] = [{"operator": "Exists"}]
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "mine"},
        "spec": {"spec": claim["spec"]},
    }
    async with client.post(path.replace("claims", "claimtemplates"), json=template) as http:
        body = await http.json()
    assert http.status == 400, body
    assert "covers the device taint" in body["message"]


async def _check_late_annotations(client, certificates: Path) -> None:
    """Annotations of a mutating webhook after dray's are refused: the pod would have no GPU."""

    async def annotate(request, *, timeout_s):
        late = {"op": "add", "path": "/metadata/annotations", "value": {P + "qos": "low"}}
        return AdmissionAnswer(patch=(late,) if request.name == "annotated-late" else ())

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
    other = AdmissionServer(
        {"/": annotate},
        host="127.0.0.1",
        port=0,
        tls=tls,
        body_limit_bytes=2**20,
        registry=prometheus_client.CollectorRegistry(),
    )
    await other.start()
    try:
        url = f"https://127.0.0.1:{other.port}"
        late, _ = webhook_configurations(url, (certificates / "ca.crt").read_bytes(), name="later")
        (webhook,) = late["webhooks"] = late["webhooks"][:1]
        webhook |= {"matchConditions": []}
        webhook["clientConfig"]["url"] = url
        path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        async with client.post(path, json=late) as http:
            assert http.status == 201, await http.text()
        plain = pod("annotated-late")
        plain["metadata"]["annotations"] = {}
        await _until(lambda: _is_denied(client, plain))
        denial = await _created(client, plain, 400)
        assert "was added by a mutating webhook that was called after dray's" in denial["message"]
        async with client.delete(f"{path}/later") as http:
            assert http.status == 200, await http.text()
        await _until(lambda: _is_let_in(client, plain))
    finally:
        await other.stop()


async def _last_event_is(bus, name: str) -> bool:
    state = await bus.state(EVENTS_STREAM)
    stream = bus.read(EVENTS_STREAM, start=state.last_sequence)
    return decode(await anext(aiter(stream)), PodRequested).name == name
