"""The server as a process: what it acknowledged survives `kill -9`."""

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from dray_sandbox.certificates import make_server_files

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: things, kind: Thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}
"""


@asynccontextmanager
async def server(directory: Path) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    command = [sys.executable, "-m", "dray_sandbox.apiserver", "--port", "0"]
    command += ["--cert", str(directory / "tls.crt"), "--key", str(directory / "tls.key")]
    command += ["--tokens", str(directory / "tokens.csv"), "--data-dir", str(directory / "data")]
    command += ["--crds", str(directory / "crds")]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        yield line.decode().split()[-1], process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        # Read to the end, so that the pipe's transport is closed before the loop is.
        await process.stdout.read()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    make_server_files(tmp_path, ("127.0.0.1",))
    (tmp_path / "tokens.csv").write_text('good,admin,1,"system:masters,devs"\n')
    (tmp_path / "crds").mkdir()
    (tmp_path / "crds" / "things.yaml").write_text(CRD)
    return tmp_path


@asynccontextmanager
async def client(directory: Path, url: str, token: str) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    connector = aiohttp.TCPConnector(ssl=context)
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(url, connector=connector, headers=headers) as session:
        yield session


async def test_acknowledged_writes_survive_a_kill(directory: Path) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    async with server(directory) as (url, process), client(directory, url, "good") as session:
        for index in range(20):
            body = {"metadata": {"name": f"c{index:02}"}, "data": {"x": "y" * 1000}}
            async with session.post(path, json=body) as response:
                assert response.status == 201
                last = (await response.json())["metadata"]["resourceVersion"]
        async with session.post(
            "/apis/example.com/v1/things", json={"metadata": {"name": "t"}}
        ) as r:
            assert r.status == 201
        process.kill()
        await process.wait()

    async with server(directory) as (url, _), client(directory, url, "good") as session:
        async with session.get(path) as response:
            found = await response.json()
        async with session.get("/apis/example.com/v1/things/t") as response:
            assert response.status == 200
        query = {"watch": "true", "resourceVersion": str(int(last) - 2), "timeoutSeconds": "1"}
        async with session.get(path, params=query) as response:
            lines = [json.loads(line) async for line in response.content]

    assert [item["metadata"]["name"] for item in found["items"]] == [
        f"c{index:02}" for index in range(20)
    ]
    assert int(found["metadata"]["resourceVersion"]) > int(last)
    assert [line["object"]["metadata"]["name"] for line in lines] == ["c18", "c19"]


async def test_kubectl_can_tell_a_kind_that_is_not_served_from_bad_wire_format(
    directory: Path,
) -> None:
    protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    async with (
        server(directory) as (url, _),
        client(directory, url, "good") as session,
        session.get("/openapi/v2", headers={"Accept": protobuf}) as response,
    ):
        assert response.content_type == protobuf.replace("@", ".")
        assert (await response.read()).startswith(b"\x0a\x032.0\x12")


async def test_a_wrong_token_is_refused_and_health_needs_none(directory: Path) -> None:
    async with server(directory) as (url, process), client(directory, url, "bad") as session:
        async with session.get("/api/v1/pods") as response:
            refusal = await response.json()
        health = []
        for path in ("/healthz", "/readyz", "/livez"):
            async with session.get(path) as response:
                health.append(await response.text())
        process.terminate()
        code = await asyncio.wait_for(process.wait(), 20)

    assert (refusal["code"], refusal["reason"]) == (401, "Unauthorized")
    assert health == ["ok", "ok", "ok"]
    assert code == 0
