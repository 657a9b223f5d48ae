"""How to reach an API server, from kubeconfig files and from a pod's service account."""

import base64
import datetime
import json
import ssl
import stat
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from dray.api.errors import InvalidInputError
from dray.kube import kubeconfig as module
from dray.kube.api import connect
from dray.kube.kubeconfig import server_access
from dray.kube.ports import NODES, KubeUnavailableError
from dray_sandbox.certificates import ServerFiles, make_server_files

CLUSTER = {"server": "https://api.example.org:6443/"}


def written(path: Path, *, cluster: Any = None, user: Any = None, **more: Any) -> str:
    """A kubeconfig of one cluster and one user; JSON is YAML too."""
    content = {
        "clusters": [{"name": "one", "cluster": CLUSTER if cluster is None else cluster}],
        "users": [{"name": "me", "user": user or {}}],
        "contexts": [{"name": "here", "context": {"cluster": "one", "user": "me"}}],
        "current-context": "here",
        **more,
    }
    path.write_text(json.dumps(content))
    return str(path)


def plugin(folder: Path, script: str) -> dict[str, Any]:
    """The user section of a plugin that is a shell script."""
    file = folder / "plugin"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(file)}}


def credential(**status: str) -> str:
    """The shell command that prints an ExecCredential."""
    content = {"apiVersion": "client.authentication.k8s.io/v1", "status": status}
    return f"echo '{json.dumps(content)}'"


@pytest.mark.parametrize(
    "held",
    [
        b"",
        b"[]",
        b"just text",
        b"a: b",
        b"a:\n\t- b",
        b"kind: Config\nclusters: 3",
        b"\xff\xfe\xff",
    ],
    ids=["nothing", "list", "text", "other", "not YAML", "wrong type", "not UTF-8"],
)
async def test_a_file_that_is_not_a_kubeconfig_is_named(tmp_path: Path, held: bytes) -> None:
    file = tmp_path / "mine.kubeconfig"
    file.write_bytes(held)

    with pytest.raises(
        InvalidInputError, match=r"mine\.kubeconfig: expected a kubeconfig: .*KUBECONFIG$"
    ):
        await server_access(str(file))


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"current-context": "there"}, "it has no context 'there'"),
        ({"clusters": None}, "it has no cluster 'one'"),
        ({"users": []}, "it has no user 'me'"),
        ({"cluster": {}}, "its cluster has no server"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "auth-provider 'gcp' is not supported"),
        ({"user": {"auth-provider": {"name": "oidc"}}}, "auth-provider 'oidc' has no id-token"),
        ({"user": {"token": "t", "as-groups": ["g"]}}, "as-groups or as-user-extra without as"),
        ({"user": {"client-certificate": "gone.pem"}}, r"gone\.pem"),
        ({"user": {"client-certificate-data": "@@@@"}}, "base64"),
    ],
)
async def test_what_is_missing_is_named(
    tmp_path: Path, changed: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        await server_access(written(tmp_path / "config", **changed))


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({}, ""),
        ({"token": "secret"}, "Bearer secret"),
        ({"token": "secret", "tokenFile": "token"}, "Bearer secret"),
        ({"tokenFile": "token"}, "Bearer from file"),
        ({"username": "u", "password": "p"}, f"Basic {base64.b64encode(b'u:p').decode()}"),
    ],
    ids=["none", "token", "token before its file", "file", "password"],
)
async def test_credentials_become_a_header(
    tmp_path: Path, user: dict[str, str], header: str
) -> None:
    (tmp_path / "token").write_text("from file\n")

    access = await server_access(written(tmp_path / "config", user=user))

    assert access.url == "https://api.example.org:6443"
    assert await access.authorization() == header


def oidc(expires_s: float) -> dict[str, Any]:
    """The user section that kubectl writes for OpenID Connect."""
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires_s}).encode()).decode()
    config = {"id-token": f"head.{claims.rstrip('=')}.signature", "refresh-token": "r"}
    return {"auth-provider": {"name": "oidc", "config": config}}


async def test_an_id_token_is_used_until_it_expires(tmp_path: Path) -> None:
    user = oidc(time.time() + 60)
    access = await server_access(written(tmp_path / "config", user=user))
    token = user["auth-provider"]["config"]["id-token"]
    assert await access.authorization() == f"Bearer {token}"

    access = await server_access(written(tmp_path / "config", user=oidc(time.time() - 1)))
    with pytest.raises(ValueError, match="has expired: kubectl renews it"):
        await access.authorization()


async def test_the_api_server_is_asked_to_act_as_the_user_that_is_named(tmp_path: Path) -> None:
    asked: list[web.Request] = []

    async def listed(request: web.Request) -> web.Response:
        asked.append(request)
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": []})

    app = web.Application()
    app.router.add_get("/api/v1/nodes", listed)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    extra = {"example.com/reason": ["audit", "drill"]}
    other = {"as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": extra}
    cluster = {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}
    user = {"token": "t", **other}
    await resource_version(written(tmp_path / "config", cluster=cluster, user=user))
    await runner.cleanup()

    headers = asked[-1].headers
    assert headers["Authorization"] == "Bearer t"
    assert headers.getall("Impersonate-User") == ["jane"]
    assert headers.getall("Impersonate-Uid") == ["7"]
    assert headers.getall("Impersonate-Group") == ["a", "b"]
    assert headers.getall("Impersonate-Extra-example.com%2Freason") == ["audit", "drill"]


async def test_of_several_files_the_first_word_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    first = written(tmp_path / "first", user={"token": "first"}, clusters=None)
    second = written(
        tmp_path / "other" / "second",
        cluster={"server": "http://second", "proxy-url": "http://proxy", "tls-server-name": "name"},
        user={"token": "second"},
    )
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'absent'}:{second}")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    access = await server_access(None)

    assert await access.authorization() == "Bearer first"
    assert (access.url, access.tls) == ("http://second", None)
    assert (access.proxy, access.tls_server_name) == ("http://proxy", "name")


async def test_a_pods_service_account_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_server_files(tmp_path, ["fd00::1"])
    (tmp_path / "token").write_text("first")
    monkeypatch.setattr(module, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr(module, "_TOKEN_S", 0.0)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    access = await server_access(None)

    assert access.url == "https://[fd00::1]:443"
    assert await access.authorization() == "Bearer first"
    (tmp_path / "token").write_text("second")
    assert await access.authorization() == "Bearer second"
    (tmp_path / "token").unlink()
    assert await access.authorization() == "Bearer second"


async def test_a_plugin_is_run_again_once_its_token_has_expired(tmp_path: Path) -> None:
    counter = tmp_path / "runs"
    over = credential(token="t", expirationTimestamp="2020-01-01T00:00:00Z")
    user = plugin(tmp_path, f"echo $KUBERNETES_EXEC_INFO $ANIMAL $1 >> {counter}\n{over}")
    user["exec"] |= {"args": ["get"], "env": [{"name": "ANIMAL", "value": "cat"}]}

    access = await server_access(written(tmp_path / "config", user=user))

    assert await access.authorization() == "Bearer t"
    runs = counter.read_text().splitlines()
    assert len(runs) == 2
    assert '"kind":"ExecCredential"' in runs[0]
    assert runs[0].endswith("cat get")


async def test_a_plugins_lasting_token_is_kept(tmp_path: Path) -> None:
    counter = tmp_path / "runs"
    lasting = credential(token="t", expirationTimestamp="2999-01-01T00:00:00Z")
    user = plugin(tmp_path, f"echo run >> {counter}\n{lasting}")

    access = await server_access(written(tmp_path / "config", user=user))

    assert await access.authorization() == "Bearer t"
    assert counter.read_text().splitlines() == ["run"]


async def test_a_plugin_in_the_kubeconfigs_folder_learns_of_the_cluster(tmp_path: Path) -> None:
    user = plugin(
        tmp_path, f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info\n{credential(token="t")}'
    )
    user["exec"] |= {"command": "./plugin", "provideClusterInfo": True}
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"garden": "g"}}
    authority = make_server_files(tmp_path, ["127.0.0.1"]).authority
    cluster = {
        "server": "https://api.example.org:6443",
        "certificate-authority": authority.name,
        "extensions": [{"name": "other", "extension": {}}, extension],
    }

    access = await server_access(written(tmp_path / "config", cluster=cluster, user=user))

    assert await access.authorization() == "Bearer t"
    info = json.loads((tmp_path / "info").read_text())["spec"]["cluster"]
    assert base64.b64decode(info.pop("certificate-authority-data")) == authority.read_bytes()
    assert info == {"server": "https://api.example.org:6443", "config": {"garden": "g"}}


@pytest.mark.parametrize(
    ("mode", "on_terminal", "interactive"),
    [("Never", True, False), ("IfAvailable", True, True), ("IfAvailable", False, False)],
)
async def test_a_plugin_talks_to_people_on_a_terminal_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    mode: str,
    on_terminal: bool,
    interactive: bool,
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: on_terminal))
    show = f'echo "open the page" >&2; echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info'
    user = plugin(tmp_path, f"{show}\n{credential(token='t')}")
    user["exec"]["interactiveMode"] = mode

    await server_access(written(tmp_path / "config", user=user))

    spec = json.loads((tmp_path / "info").read_text())["spec"]
    assert spec == {"interactive": interactive}
    assert ("open the page" in capfd.readouterr().err) is interactive


async def test_a_plugin_that_must_ask_people_needs_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False))
    user = plugin(tmp_path, credential(token="t"))
    user["exec"]["interactiveMode"] = "Always"

    with pytest.raises(InvalidInputError, match="standard input is no terminal"):
        await server_access(written(tmp_path / "config", user=user))


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo log in first >&2; exit 3", "ended with exit code 3: log in first"),
        ("echo hello", "printed no ExecCredential"),
        (credential(), "printed neither a token nor a certificate"),
        ("""echo '{"apiVersion": "v0", "status": {}}'""", "answers v0, expected client.auth"),
    ],
)
async def test_a_plugin_that_fails_is_named(tmp_path: Path, script: str, complaint: str) -> None:
    user = plugin(tmp_path, script)

    with pytest.raises(InvalidInputError, match=complaint):
        await server_access(written(tmp_path / "config", user=user))


async def test_an_absent_plugin_is_named_with_its_hint(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "v1", "command": "/no/such", "installHint": "Install it."}}

    with pytest.raises(InvalidInputError, match=r"'/no/such' can't be started: .* Install it\."):
        await server_access(written(tmp_path / "config", user=user))


def client_files(folder: Path) -> ServerFiles:
    """A client's certificate, which is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now.replace(year=2999))
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    (folder / "client.crt").write_bytes(certificate)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "client.key").write_bytes(secret)
    certificates = folder / "client.crt"
    return ServerFiles(certificates, certificates, folder / "client.key")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[str, ServerFiles]]:
    """An API server that admits a client with a certificate alone, and the client's files."""
    files = make_server_files(tmp_path, ["127.0.0.1"])
    client = client_files(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(client.certificate))
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(files.certificate, files.key)

    async def listed(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": []})

    app = web.Application()
    app.router.add_get("/api/v1/nodes", listed)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}", replace(client, authority=files.authority)
    await runner.cleanup()


async def resource_version(kubeconfig: str) -> int:
    kube = await connect(kubeconfig, user_agent="dray-test")
    try:
        return (await kube.list(NODES)).resource_version
    finally:
        await kube.close()


@pytest.mark.parametrize("kind", ["paths", "data", "plugin"])
async def test_certificates_are_used_both_ways(
    tmp_path: Path, server: tuple[str, ServerFiles], kind: str
) -> None:
    url, files = server
    ca, certificate, key = (path.name for path in (files.authority, files.certificate, files.key))
    cluster = {"server": url, "certificate-authority": ca}
    user: dict[str, Any] = {"client-certificate": certificate, "client-key": key}
    if kind == "data":
        encoded = [
            base64.encodebytes(path.read_bytes()).decode()
            for path in (files.authority, files.certificate, files.key)
        ]
        cluster = {"server": url, "certificate-authority-data": encoded[0]}
        user = {"client-certificate-data": encoded[1], "client-key-data": encoded[2]}
    elif kind == "plugin":
        pair = {"clientCertificateData": files.certificate, "clientKeyData": files.key}
        texts = {name: path.read_text() for name, path in pair.items()}
        user = plugin(tmp_path, f"cat <<'END'\n{credential(**texts)[6:-1]}\nEND")

    assert await resource_version(written(tmp_path / "config", cluster=cluster, user=user)) == 7


async def test_a_server_of_another_authority_is_refused_unless_all_are_accepted(
    tmp_path: Path, server: tuple[str, ServerFiles]
) -> None:
    url, files = server
    user = {"client-certificate": str(files.certificate), "client-key": str(files.key)}
    with pytest.raises(KubeUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        await resource_version(written(tmp_path / "config", cluster={"server": url}, user=user))

    insecure = {"server": url, "insecure-skip-tls-verify": True}
    assert await resource_version(written(tmp_path / "any", cluster=insecure, user=user)) == 7
