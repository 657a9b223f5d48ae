"""Address and credentials of an API server: from kubeconfig files, or a pod's service account.

The files are merged as kubectl merges them (kubernetes.io/docs/concepts/configuration/
organize-cluster-access-kubeconfig). Credentials are certificates, tokens, passwords, exec plugins
and the ID token of ``auth-provider: oidc``, which kubectl renews. Providers that kubectl has
removed are refused. kubernetes_asyncio reads these files, too, but imports some 900 modules.
"""

import asyncio
import base64
import contextlib
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import msgspec
import yaml

from dray.api.errors import InvalidInputError

T = TypeVar("T")
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_S: Final = 60.0
"""Time after which the service account's token is read again: the kubelet rotates it."""
_EARLY_S: Final = 30.0
"""A plugin's token is replaced this long before it expires."""

_IN_HEADER_NAMES: Final = "!#$&'*+-.^_`|~"
"""Characters that are not escaped in a header's name, in addition to letters and digits."""

Authorization = Callable[[], Awaitable[str]]
"""Returns the value of the header ``Authorization``; empty: no header is sent."""


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """How to reach an API server."""

    url: str
    """Without a slash at the end."""
    authorization: Authorization
    tls: ssl.SSLContext | None = None
    """None for plain HTTP."""
    tls_server_name: str = ""
    """The name in the server's certificate, if it is not the name in ``url``."""
    proxy: str = ""
    """URL of the proxy; empty: the environment determines it."""
    impersonation: Sequence[tuple[str, str]] = ()
    """Headers that name the user to act as."""


class KubeconfigCluster(msgspec.Struct, rename="kebab", frozen=True):
    """``clusters[].cluster`` of a kubeconfig."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: Sequence[dict[str, Any]] | None = None

    def for_plugin(self, authority: bytes) -> dict[str, Any]:
        """The part of the cluster that an exec plugin gets if it asks for it."""
        configs = [
            one.get("extension")
            for one in self.extensions or ()
            if one.get("name") == "client.authentication.k8s.io/exec"
        ]
        fields = {
            "server": self.server,
            "tls-server-name": self.tls_server_name,
            "insecure-skip-tls-verify": self.insecure_skip_tls_verify,
            "certificate-authority-data": base64.b64encode(authority).decode(),
            "proxy-url": self.proxy_url,
            "config": configs[0] if configs else None,
        }
        return {name: value for name, value in fields.items() if value}


class PluginVariable(msgspec.Struct, frozen=True):
    """``exec.env[]`` of a kubeconfig's user."""

    name: str
    value: str


class ExecPlugin(msgspec.Struct, rename="camel", frozen=True):
    """``exec`` of a kubeconfig's user: a program that prints credentials."""

    api_version: str
    command: str
    args: Sequence[str] | None = None
    env: Sequence[PluginVariable] | None = None
    install_hint: str = ""
    interactive_mode: str = ""
    provide_cluster_info: bool = False


class PluginStatus(msgspec.Struct, rename="camel", frozen=True):
    """``status`` of an ExecCredential."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class ExecCredential(msgspec.Struct, rename="camel", frozen=True):
    """What an exec plugin prints."""

    api_version: str
    status: PluginStatus


class KubeconfigUser(msgspec.Struct, rename="kebab", frozen=True):
    """``users[].user`` of a kubeconfig."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec: ExecPlugin | None = None
    auth_provider: "AuthProvider | None" = None
    impersonated_user: str = msgspec.field(default="", name="as")
    impersonated_uid: str = msgspec.field(default="", name="as-uid")
    impersonated_groups: Sequence[str] | None = msgspec.field(default=None, name="as-groups")
    impersonated_extra: Mapping[str, Sequence[str]] | None = msgspec.field(
        default=None, name="as-user-extra"
    )

    def impersonation(self) -> list[tuple[str, str]]:
        """The headers that make the API server act for another user.

        Raises:
            ValueError: no user is named.
        """
        headers = [("Impersonate-Uid", self.impersonated_uid)] if self.impersonated_uid else []
        headers += [("Impersonate-Group", group) for group in self.impersonated_groups or ()]
        headers += [
            (f"Impersonate-Extra-{quote(key, safe=_IN_HEADER_NAMES)}", value)
            for key, values in (self.impersonated_extra or {}).items()
            for value in values
        ]
        if self.impersonated_user:
            return [("Impersonate-User", self.impersonated_user), *headers]
        if headers:
            raise ValueError("its user has as-uid, as-groups or as-user-extra without as")
        return []


class AuthProvider(msgspec.Struct, frozen=True):
    """``auth-provider`` of a kubeconfig's user."""

    name: str = ""
    config: Mapping[str, str] | None = None


class KubeconfigContext(msgspec.Struct, frozen=True):
    """``contexts[].context`` of a kubeconfig."""

    cluster: str
    user: str = ""


class NamedCluster(msgspec.Struct, frozen=True):
    """An entry of ``clusters``."""

    name: str
    cluster: KubeconfigCluster


class NamedUser(msgspec.Struct, frozen=True):
    """An entry of ``users``."""

    name: str
    user: KubeconfigUser | None = None


class NamedContext(msgspec.Struct, frozen=True):
    """An entry of ``contexts``."""

    name: str
    context: KubeconfigContext


class KubeconfigFile(msgspec.Struct, rename="kebab", frozen=True):
    """The parts of a kubeconfig that are read."""

    current_context: str | None = None
    clusters: Sequence[NamedCluster] | None = None
    users: Sequence[NamedUser] | None = None
    contexts: Sequence[NamedContext] | None = None


@dataclass(frozen=True, slots=True)
class FromFile(Generic[T]):
    """An entry, and the folder from which its relative paths start."""

    folder: Path
    entry: T

    def path(self, name: str) -> str:
        """The path of a file that the entry names; empty for an empty name."""
        return str(self.folder / name) if name else ""


async def server_access(kubeconfig: str | None) -> ServerAccess:
    """Access from the file ``kubeconfig``. Without one: in-cluster, else ``KUBECONFIG``, else
    ``~/.kube/config``.

    Raises:
        InvalidInputError: there is no such file, or it can't be used.
    """
    in_cluster = kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ
    if in_cluster:
        where = "the service account of this pod"
    else:
        where = kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    try:
        return await (_in_cluster() if in_cluster else _from_files(where.split(os.pathsep)))
    except (OSError, ValueError, yaml.YAMLError, msgspec.MsgspecError) as error:
        reason = " ".join(str(error).split())
        raise InvalidInputError(
            f"can't use {where}: expected a kubeconfig: {reason}; "
            "set DRAY_KUBE__KUBECONFIG or KUBECONFIG"
        ) from error


async def _in_cluster() -> ServerAccess:
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ.get("KUBERNETES_SERVICE_PORT") or "443"
    url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    token = _TokenFile(str(_SERVICE_ACCOUNT / "token"))
    tls = ssl.create_default_context(cafile=str(_SERVICE_ACCOUNT / "ca.crt"))
    return ServerAccess(url, token.authorization, tls)


async def _from_files(names: list[str]) -> ServerAccess:
    files = _files([Path(name) for name in names if name])
    current = next((file.entry.current_context for file in files if file.entry.current_context), "")
    if not current:
        raise ValueError("it has no current-context")
    contexts = [(one.name, one.context) for file in files for one in file.entry.contexts or ()]
    context = _named("context", current, contexts)
    clusters = [
        (one.name, FromFile(file.folder, one.cluster))
        for file in files
        for one in file.entry.clusters or ()
    ]
    users = [
        (one.name, FromFile(file.folder, one.user or KubeconfigUser()))
        for file in files
        for one in file.entry.users or ()
    ]
    cluster = _named("cluster", context.cluster, clusters)
    if not context.user:
        return await _access(cluster, FromFile(cluster.folder, KubeconfigUser()))
    return await _access(cluster, _named("user", context.user, users))


def _files(paths: list[Path]) -> list[FromFile[KubeconfigFile]]:
    """Read the files. If several are named, some may be absent, as in kubectl."""
    existing = [path for path in paths if path.exists()] if len(paths) > 1 else paths
    return [
        FromFile(
            path.parent.absolute(),
            msgspec.convert(yaml.safe_load(path.read_bytes().decode()) or {}, KubeconfigFile),
        )
        for path in existing
    ]


def _named(kind: str, name: str, entries: Sequence[tuple[str, T]]) -> T:
    """The first entry with this name, as in kubectl.

    Raises:
        ValueError: there is none.
    """
    for its, entry in entries:
        if its == name:
            return entry
    raise ValueError(f"it has no {kind} {name!r}")


async def _access(
    cluster: FromFile[KubeconfigCluster], user: FromFile[KubeconfigUser]
) -> ServerAccess:
    server, credentials = cluster.entry, user.entry
    if not server.server:
        raise ValueError("its cluster has no server")
    url = server.server.rstrip("/")
    certificate = _content(user, credentials.client_certificate_data, "client_certificate")
    key = _content(user, credentials.client_key_data, "client_key")
    authority = _content(cluster, server.certificate_authority_data, "certificate_authority")
    authorization = _authorization(user)
    if credentials.exec is not None:
        plugin = _Plugin(credentials.exec, user.folder, server.for_plugin(authority))
        authorization = plugin.authorization
        status = await plugin.status()
        if status.client_certificate_data:
            certificate = status.client_certificate_data.encode()
            key = status.client_key_data.encode()
    tls = _tls(server, authority, certificate, key) if url.startswith("https:") else None
    return ServerAccess(
        url,
        authorization,
        tls,
        server.tls_server_name,
        server.proxy_url,
        credentials.impersonation(),
    )


def _content(entry: FromFile[Any], data: str, field: str) -> bytes:
    """The decoded ``…-data`` field, else the content of the file; empty if there is neither."""
    if data:
        return base64.b64decode("".join(data.split()), validate=True)
    path = entry.path(getattr(entry.entry, field))
    return Path(path).read_bytes() if path else b""


def _tls(
    server: KubeconfigCluster, authority: bytes, certificate: bytes, key: bytes
) -> ssl.SSLContext:
    tls = ssl.create_default_context(cadata=authority.decode() or None)
    if server.insecure_skip_tls_verify:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    if certificate:
        # Python reads certificates only from files. Only the owner can read this file.
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            tls.load_cert_chain(file.name)
    return tls


def _authorization(user: FromFile[KubeconfigUser]) -> Authorization:
    """The user's credentials as in kubectl: a token, else a token in a file, else name and
    password, else none."""
    credentials = user.entry
    if credentials.auth_provider is not None:
        return _id_token(credentials.auth_provider)
    if not credentials.token and credentials.token_file:
        return _TokenFile(user.path(credentials.token_file)).authorization
    value = f"Bearer {credentials.token}" if credentials.token else ""
    if not value and credentials.username:
        pair = f"{credentials.username}:{credentials.password}".encode()
        value = f"Basic {base64.b64encode(pair).decode()}"

    async def constant() -> str:
        return value

    return constant


def _id_token(provider: AuthProvider) -> Authorization:
    """The ID token that kubectl has stored. Raises ValueError if there is none."""
    if provider.name != "oidc":
        raise ValueError(f"auth-provider {provider.name!r} is not supported: use an exec plugin")
    token = (provider.config or {}).get("id-token", "")
    _, _, claims = token.rpartition(".")[0].partition(".")
    try:
        expires_s = msgspec.json.decode(base64.urlsafe_b64decode(claims + "=="))["exp"]
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError):
        raise ValueError("auth-provider 'oidc' has no id-token: log in with kubectl") from None

    async def authorization() -> str:
        if time.time() >= expires_s:
            raise ValueError(
                "the id-token of auth-provider 'oidc' has expired: kubectl renews it, as with "
                "`kubectl version`"
            )
        return f"Bearer {token}"

    return authorization


class _TokenFile:
    """Reads a token again after ``_TOKEN_S``. Keeps the old token while the file can't be read."""

    def __init__(self, path: str) -> None:
        """Raises ValueError or OSError if there is no token."""
        self._path = Path(path)
        self._token = self._read()
        self._read_s = time.monotonic()
        if not self._token:
            raise ValueError(f"the token file {path} is empty")

    async def authorization(self) -> str:
        """The token's header."""
        if time.monotonic() - self._read_s >= _TOKEN_S:
            with contextlib.suppress(OSError):
                self._token = self._read() or self._token
            self._read_s = time.monotonic()
        return f"Bearer {self._token}"

    def _read(self) -> str:
        return self._path.read_text().strip()


class _Plugin:
    """Runs an exec plugin, and runs it again when its token has expired."""

    def __init__(self, plugin: ExecPlugin, folder: Path, cluster: Mapping[str, Any]) -> None:
        self._plugin = plugin
        has_path = os.sep in plugin.command
        self._command = str(folder / plugin.command) if has_path else plugin.command
        self._cluster = cluster if plugin.provide_cluster_info else None
        self._known: PluginStatus | None = None
        self._expires_s: float | None = None
        """Unix time; None: never."""
        self._one_at_a_time = asyncio.Lock()

    async def authorization(self) -> str:
        """The token's header; empty for a plugin that returns certificates."""
        token = (await self.status()).token
        return f"Bearer {token}" if token else ""

    async def status(self) -> PluginStatus:
        """The newest credentials.

        Raises:
            ValueError: the plugin failed, or returned no credentials.
        """
        async with self._one_at_a_time:
            is_over = self._expires_s is not None and time.time() >= self._expires_s - _EARLY_S
            if self._known is None or is_over:
                self._known = await self._run()
                expires = self._known.expiration_timestamp
                self._expires_s = datetime.fromisoformat(expires).timestamp() if expires else None
            return self._known

    async def _run(self) -> PluginStatus:
        plugin = self._plugin
        what = f"the exec plugin {plugin.command!r}"
        interactive = plugin.interactive_mode != "Never" and sys.stdin.isatty()
        if plugin.interactive_mode == "Always" and not interactive:
            raise ValueError(f"{what} asks people, and standard input is no terminal")
        spec: dict[str, Any] = {"interactive": interactive}
        if self._cluster is not None:
            spec["cluster"] = self._cluster
        info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
        env = {
            **os.environ,
            **{variable.name: variable.value for variable in plugin.env or ()},
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
        }
        try:
            process = await asyncio.create_subprocess_exec(
                self._command,
                *(plugin.args or ()),
                env=env,
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                # The plugin shows people where to log in.
                stderr=None if interactive else asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f" {plugin.install_hint}" if plugin.install_hint else ""
            raise ValueError(f"{what} can't be started: {error}.{hint}") from error
        printed, complaint = await process.communicate()
        if process.returncode:
            text = (complaint or b"").decode(errors="replace").strip()
            raise ValueError(f"{what} ended with exit code {process.returncode}: {text}")
        try:
            found = msgspec.json.decode(printed, type=ExecCredential)
        except msgspec.MsgspecError as error:
            raise ValueError(f"{what} printed no ExecCredential: {error}") from error
        if found.api_version != plugin.api_version:
            raise ValueError(f"{what} answers {found.api_version}, expected {plugin.api_version}")
        status = found.status
        if not status.token and not (status.client_certificate_data and status.client_key_data):
            raise ValueError(f"{what} printed neither a token nor a certificate with its key")
        return status
