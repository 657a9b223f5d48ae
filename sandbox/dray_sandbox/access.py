"""Users of a local API server, their bearer tokens and kubeconfig files."""

import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dray.runtime.certificates import ClientCertificate
from dray_sandbox.certificates import ServerFiles, make_server_files
from dray_sandbox.secret_files import write_secret

ADMIN = "dray-admin"
SCHEDULER = "system:kube-scheduler"
CONTROLLERS = "system:kube-controller-manager"
KUBELET = "dray-kubelet-standin"
CLAIM_CONTROLLER = "dray-claim-controller"
NODE_AGENT = "dray-node-agent"
WEBHOOK = "dray-webhook"

GROUPS: Mapping[str, tuple[str, ...]] = {
    ADMIN: ("system:masters",),
    SCHEDULER: (),
    CONTROLLERS: ("system:masters",),
    KUBELET: ("dray-services",),
    CLAIM_CONTROLLER: ("dray-services",),
    NODE_AGENT: ("dray-services",),
    WEBHOOK: ("dray-services",),
}
"""Every user and its groups. Here, kube-controller-manager does not use one service account per
controller, so its user has the rights of all its controllers."""


@dataclass(frozen=True, slots=True)
class SandboxCredentials:
    """The files with which an API server is started, and its users' tokens."""

    directory: Path
    server: ServerFiles
    token_file: Path
    tokens: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running API server, with each user's token and kubeconfig."""

    url: str
    authority: Path
    tokens: Mapping[str, str]
    kubeconfigs: Mapping[str, Path]
    audit_log: Path | None = None
    """Only a real control plane writes one; ``dray_sandbox.controlplane.audit`` reads it."""

    @property
    def admin_kubeconfig(self) -> Path:
        """The kubeconfig of the administrator."""
        return self.kubeconfigs[ADMIN]


def make_credentials(directory: Path, names: Sequence[str] = ()) -> SandboxCredentials:
    """New certificates, and a new random token for every user of GROUPS.

    ``names`` are additional names and addresses of the API server.
    """
    tokens = {user: secrets.token_urlsafe(24) for user in GROUPS}
    rows = [
        f'{tokens[user]},{user},{user},"{",".join(groups)}"\n' for user, groups in GROUPS.items()
    ]
    token_file = directory / "tokens.csv"
    write_secret(token_file, "".join(rows).encode())
    server = make_server_files(directory, ("127.0.0.1", "localhost", *names))
    return SandboxCredentials(directory, server, token_file, tokens)


def endpoint(credentials: SandboxCredentials, url: str, context: str) -> Endpoint:
    """Write one kubeconfig per user, with a context called ``context``."""
    paths = {
        user: credentials.directory / f"{user.removeprefix('system:')}.kubeconfig"
        for user in credentials.tokens
    }
    for user, path in paths.items():
        content = kubeconfig(
            url, credentials.server.authority, user, credentials.tokens[user], context
        )
        write_secret(path, content)
    return Endpoint(url, credentials.server.authority, credentials.tokens, paths)


def kubeconfig(url: str, authority: Path, user: str, token: str, context: str) -> bytes:
    """A kubeconfig file for one user with a token, as JSON."""
    return _kubeconfig(url, authority, user, {"token": token}, context)


def certificate_kubeconfig(
    endpoint: Endpoint, user: str, client: ClientCertificate, context: str
) -> bytes:
    """A kubeconfig file for one user with a certificate, as JSON."""
    proof = {
        "client-certificate-data": base64.b64encode(client.certificate).decode(),
        "client-key-data": base64.b64encode(client.key).decode(),
    }
    return _kubeconfig(endpoint.url, endpoint.authority, user, proof, context)


def _kubeconfig(
    url: str, authority: Path, user: str, proof: Mapping[str, str], context: str
) -> bytes:
    cluster = {"server": url, "certificate-authority": str(authority)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": user, "user": proof}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": user}}],
        "current-context": context,
    }
    return json.dumps(content, indent=2).encode() + b"\n"
