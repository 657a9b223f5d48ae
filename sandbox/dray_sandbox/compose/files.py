"""The files that the containers of ``deploy/compose`` share, made once before they start."""

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dray.bus.payload import RECOMMENDED_BYTES
from dray.bus.topology import CLAIM_CONTROLLER
from dray_sandbox.access import (
    ADMIN,
    Endpoint,
    endpoint,
    make_credentials,
)
from dray_sandbox.access import (
    CLAIM_CONTROLLER as CONTROLLER_USER,
)
from dray_sandbox.access import (
    NODE_AGENT as AGENT_USER,
)
from dray_sandbox.certificates import make_signing_key
from dray_sandbox.layout import GPU_RESOURCES, SCHEDULER_NAMES
from dray_sandbox.nats_server import (
    CONFIGURATION,
    Secrets,
    accounts_file,
)
from dray_sandbox.secret_files import write_secret
from dray_sandbox.services import NodeFolders

_CONTEXT = "dray-compose"
_SERVICES = ("webhook", "claim-controller", "allocator", "node-agent")
_USER_ID = 65532
"""The user of the images' containers."""
_DONE = "done"


def prepare(
    state: Path, people: Path, nodes: tuple[str, ...], *, api: str, nats: str, published: int
) -> bool:
    """Fill ``state`` for containers, and write a kubeconfig for this machine's user to ``people``.

    ``api`` and ``nats`` are host and port as containers reach them; ``published`` is this machine's
    port of the API server. Returns False if it was done before: the files stay, so that containers
    may start again.
    """
    if (state / _DONE).exists():
        return False
    host = api.rpartition(":")[0]
    credentials = make_credentials(state / "access", (host,))
    reached = endpoint(credentials, f"https://{api}", _CONTEXT)
    make_signing_key(state / "access" / "sa.key")
    _write_scheduler(state / "access", reached)
    _write_kubeconfig(people / "kubeconfig", reached, f"https://127.0.0.1:{published}")
    _write_nats(state, f"nats://{nats}", nats.rpartition(":")[2])
    for node in nodes:
        NodeFolders(state / "nodes" / node).make()
    (state / "webhook").mkdir(exist_ok=True)
    (state / _DONE).touch()
    _hand_over(state)
    return True


def known_endpoint(state: Path, api: str) -> Endpoint:
    """The API server that ``prepare`` set up."""
    folder = state / "access"
    found = json.loads((folder / f"{ADMIN}.kubeconfig").read_text())
    token = found["users"][0]["user"]["token"]
    return Endpoint(f"https://{api}", folder / "ca.crt", {ADMIN: token}, {})


def _write_scheduler(folder: Path, reached: Endpoint) -> None:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(reached.kubeconfigs["system:kube-scheduler"])},
    }
    write_secret(folder / "kube-scheduler.json", json.dumps(configuration).encode())


def _write_kubeconfig(path: Path, reached: Endpoint, url: str) -> None:
    """The authority is embedded, because the containers' files are not this machine's."""
    content = json.loads(reached.admin_kubeconfig.read_text())
    authority = base64.b64encode(reached.authority.read_bytes()).decode()
    content["clusters"][0]["cluster"] = {"server": url, "certificate-authority-data": authority}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_secret(path, json.dumps(content, indent=2).encode() + b"\n")


def _write_nats(state: Path, url: str, port: str) -> None:
    """The server's configuration with its secrets, and each service's settings."""
    keys = Secrets.new()
    folder = state / "nats"
    folder.mkdir(parents=True, exist_ok=True)
    # nats-server looks variables up in its environment, which no compose file can set here.
    accounts = accounts_file().read_text("utf-8")
    for name, text in keys.environment().items():
        accounts = accounts.replace(f"${name}", json.dumps(text))
    write_secret(folder / CONFIGURATION, accounts.encode())
    lines = [
        "server_name: nats",
        f"port: {port}",
        f"max_payload: {RECOMMENDED_BYTES}",
        'jetstream { store_dir: "/data", sync_interval: always }',
        f'include "{CONFIGURATION}"',
    ]
    write_secret(folder / "nats.conf", "\n".join([*lines, ""]).encode())
    kubeconfigs = {CLAIM_CONTROLLER: CONTROLLER_USER, "node-agent": AGENT_USER}
    for service in _SERVICES:
        settings: dict[str, dict[str, Any]] = {"nats": {"url": url}}
        if service in keys.passwords:
            settings["nats"] |= {"user": service, "password": keys.passwords[service]}
        if service == CLAIM_CONTROLLER:
            settings["identities"] = {"issuer_seed": keys.issuer_seed}
        if service == CLAIM_CONTROLLER:
            settings["groups"] = {"scheduler_names": ",".join(SCHEDULER_NAMES)}
        if service == "webhook":
            settings["webhook"] = {
                "scheduler_names": ",".join(SCHEDULER_NAMES),
                "gpu_resources": ",".join(GPU_RESOURCES),
            }
        if service in kubeconfigs:
            path = state / "access" / f"{kubeconfigs[service]}.kubeconfig"
            settings["kube"] = {"kubeconfig": str(path)}
        write_secret(state / f"{service}.toml", _toml(settings).encode())


def _toml(groups: Mapping[str, Mapping[str, str]]) -> str:
    """Groups of strings as TOML. JSON strings are valid TOML."""
    lines = []
    for group, values in groups.items():
        lines += [f"[{group}]", *(f"{key} = {json.dumps(text)}" for key, text in values.items())]
    return "\n".join([*lines, ""])


def _hand_over(folder: Path) -> None:
    """Make the images' user the owner of the files, if this process may change owners."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, _USER_ID, _USER_ID)
