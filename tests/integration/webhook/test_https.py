"""The HTTPS side with its own certificates: good reviews, bad bodies, failing handlers."""

import base64
import json
import ssl

import aiohttp
import prometheus_client
import pytest

from dray_webhook.decisions.review import AdmissionAnswer
from dray_webhook.service.certificates import ensure_certificates
from dray_webhook.service.server import AdmissionServer, ListenError

REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {"uid": "uid-1", "operation": "CREATE", "object": {"spec": {}}},
}


async def echo(request, *, timeout_s):
    return AdmissionAnswer(patch=({"op": "add", "path": "/timeout", "value": timeout_s},))


async def broken(request, *, timeout_s):
    raise RuntimeError("a fault of the program")


@pytest.fixture
async def https(tmp_path):
    made = ensure_certificates(tmp_path, ("127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    registry = prometheus_client.CollectorRegistry()
    server = AdmissionServer(
        {"/echo": echo, "/broken": broken},
        host="127.0.0.1",
        port=0,
        tls=context,
        body_limit_bytes=2000,
        registry=registry,
    )
    await server.start()
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=made.ca))
    base = f"https://127.0.0.1:{server.port}"
    async with aiohttp.ClientSession(base, connector=connector) as client:
        yield client, registry
    await server.stop()


@pytest.fixture
def client(https):
    return https[0]


async def test_a_review_is_answered_with_its_uid_and_patch(client):
    async with client.post("/echo?timeout=3s", json=REVIEW) as http:
        response = (await http.json())["response"]

    assert (http.status, response["uid"]) == (200, "uid-1")
    patch = json.loads(base64.b64decode(response["patch"]))
    assert patch == [{"op": "add", "path": "/timeout", "value": 3.0}]


async def test_without_a_timeout_kubernetes_default_holds(client):
    async with client.post("/echo", json=REVIEW) as http:
        response = (await http.json())["response"]

    assert json.loads(base64.b64decode(response["patch"]))[0]["value"] == 10.0


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"kind":"Pod"}'])
async def test_a_bad_body_is_400_with_the_reason(client, body):
    async with client.post("/echo", data=body) as http:
        text = await http.text()

    assert http.status == 400
    assert "expected an AdmissionReview" in text


async def test_a_body_over_the_limit_is_413(client):
    async with client.post("/echo", data=b" " * 3000) as http:
        assert http.status == 413


async def test_a_failing_handler_is_500_and_the_next_call_works(client):
    async with client.post("/broken", json=REVIEW) as http:
        assert http.status == 500
    async with client.post("/echo", json=REVIEW) as http:
        assert http.status == 200


async def test_other_paths_and_methods_are_refused(client):
    async with client.post("/other", json=REVIEW) as http:
        assert http.status == 404
    async with client.get("/echo") as http:
        assert http.status == 405


async def test_latency_is_measured_by_path_and_outcome(https):
    client, registry = https
    async with client.post("/echo", json=REVIEW):
        pass

    labels = {"path": "/echo", "outcome": "allowed"}
    assert registry.get_sample_value("dray_webhook_admission_seconds_count", labels) == 1.0


async def test_an_error_names_a_taken_port_and_its_setting(https, tmp_path):
    client, _ = https
    server = AdmissionServer(
        {},
        host="127.0.0.1",
        port=client._base_url.port,
        tls=None,
        body_limit_bytes=1,
        registry=prometheus_client.CollectorRegistry(),
    )

    with pytest.raises(ListenError, match="set DRAY_WEBHOOK__HOST and DRAY_WEBHOOK__PORT"):
        await server.start()

    await server.stop()
