"""The command line on an installed cluster: nothing but a kubeconfig, and the operators' roles."""

import asyncio
import base64
import gzip
import json
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
import yaml
from tests.command_blocks import commands_of
from tests.packaging.helm.installation import (
    ACCOUNTS,
    INSTALLED,
    KEEPS_SHARES,
    NAMESPACE,
    OF_DECISIONS,
    SIMULATED,
    Cluster,
    CommandError,
    cluster,
    gpu_pod,
    run,
)

from tools.generate.observability import ROWS

pytestmark = INSTALLED

SPANS: list[bytes] = []
"""What the services have sent to the collector of traces."""
CANARIES = {name: f"canary-of-the-{name}" for name in ("environment", "arguments", "annotations")}
"""Secrets that users write into pods."""
OPERATOR = "system:serviceaccount:default:someone"
OPEN_METRICS = {"Accept": "application/openmetrics-text"}
"""Prometheus' text format has no exemplars."""
EVERYTHING = ("--set", "logLevel=debug", "--set", "record=true")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed() -> AsyncIterator[Cluster]:
    """An installation that shows all it can, with a pod that runs and one that waits."""
    async with cluster("command-line", nodes=1) as made:
        with collector(made) as url:
            await made.install(*SIMULATED, *EVERYTHING, "--set", f"tracing.endpoint={url}")
            await made.ready()
            await made.apply(with_canaries(gpu_pod("runs")), gpu_pod("waits", tflops="1000000"))
            await made.running("runs")
            yield made


@contextmanager
def collector(cluster: Cluster) -> Iterator[str]:
    """A collector of traces, which pods reach as they reach the API server; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            compressed = self.headers.get("Content-Encoding") == "gzip"
            SPANS.append(gzip.decompress(body) if compressed else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    content = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    address = urlsplit(content["clusters"][0]["cluster"]["server"]).hostname
    server = ThreadingHTTPServer((address, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{address}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def with_canaries(manifest: str) -> str:
    """The pod with secrets where users put them."""
    pod = yaml.safe_load(manifest)
    pod["metadata"]["annotations"]["example.com/token"] = CANARIES["annotations"]
    (container,) = pod["spec"]["containers"]
    container["env"] = [{"name": "PASSWORD", "value": CANARIES["environment"]}]
    container["args"] = [f"--password={CANARIES['arguments']}"]
    return yaml.safe_dump(pod)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kubeconfig of a user with the operators' roles, as the page of the installation gives
    them, whose token a plugin gives."""
    folder = tmp_path_factory.mktemp("operator")
    await installed.kubectl("create", "serviceaccount", "someone", "-n", "default")
    binding = [one for one in commands_of("docs/install.md") if one.startswith("kubectl create")]
    assert len(binding) == 2
    for command in binding:
        given = command.replace("--user=NAME", "--serviceaccount=default:someone")
        await installed.kubectl(*given.split()[1:])
    token = (await installed.kubectl("create", "token", "someone", "-n", "default")).strip()
    return with_plugin(installed.kubeconfig, token, folder)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def recording(operator: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the operator has recorded."""
    file = tmp_path_factory.mktemp("recording") / "x.jsonl"
    assert "records" in await dray(operator, "record", str(file), "--for", "3s")
    return file


def with_plugin(kubeconfig: str, token: str, folder: Path) -> Path:
    """A kubeconfig of the same cluster whose user's token comes from an exec plugin."""
    plugin = folder / "plugin"
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token},
    }
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    plugin.chmod(0o700)
    content = yaml.safe_load(Path(kubeconfig).read_text())
    (user,) = content["users"]
    user["user"] = {
        "exec": {
            "apiVersion": credential["apiVersion"],
            "command": str(plugin),
            "interactiveMode": "Never",
        }
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


async def dray(kubeconfig: Path, *arguments: str) -> str:
    """What the command line prints. Raises CommandError."""
    return await run(
        [sys.executable, "-m", "dray_cli", *arguments, "--kubeconfig", str(kubeconfig)]
    )


async def test_the_doctor_sees_the_bus_and_finds_nothing_broken(
    installed: Cluster, operator: Path
) -> None:
    printed = json.loads(await dray(operator, "doctor", "-o", "json"))

    assert printed["healthy"]
    found = {one["subject"]: one["grade"] for one in printed["findings"]}
    assert found["a claim-controller leads"] == "ok"
    assert found["decision log of default"] == "ok"
    # This user may ask for nothing by dry runs.
    assert found["what it keeps"] == "ok"
    assert found["fractions of a card"] == ("ok" if KEEPS_SHARES else "lesser")
    assert found["container runtime with CDI"] == "ok"


@OF_DECISIONS
async def test_scores_and_traces_come_from_the_bus(installed: Cluster, operator: Path) -> None:
    explained = json.loads(await dray(operator, "explain", "pod/runs", "--scores", "-o", "json"))
    traced = json.loads(await dray(operator, "trace", "pod/runs", "-o", "json"))

    assert explained["scores"]["nodes"]
    assert traced["source"] == "messages and objects"


async def test_what_needs_no_bus_works_too(installed: Cluster, operator: Path) -> None:
    assert "8 of 8 devices; nearest:" in await dray(operator, "explain", "pod/waits")
    assert "default/runs" in await dray(operator, "gpus")
    assert "default/runs" in await dray(operator, "top", "--once")


async def test_a_recording_is_made_and_replayed(recording: Path) -> None:
    replayed = await run([sys.executable, "-m", "dray_cli", "replay", str(recording)])

    assert "equal" in replayed or "same" in replayed


async def test_nothing_that_dray_shows_has_a_secret(
    installed: Cluster, operator: Path, recording: Path
) -> None:
    async def logs(name: str, *selector: str) -> str:
        return await installed.kubectl(
            "logs", "-n", NAMESPACE, "--tail=-1", "--all-containers", *selector
        )

    services = ("webhook", "claim-controller", "allocator", "node-agent", "nats")
    shown = {
        f"logs of {name}": await logs(name, "-l", f"app.kubernetes.io/name=dray-{name}")
        for name in services
    }
    for verb in ("explain", "trace"):
        shown[verb] = await dray(operator, verb, "pod/runs", "-o", "json")
    shown["doctor"] = await dray(operator, "doctor", "--deep", "-o", "json")
    shown["the recording"] = await asyncio.to_thread(recording.read_text)
    shown["traces"] = b"".join(SPANS).decode("utf-8", "replace")
    shown["events"] = await installed.kubectl("get", "events", "-A", "-o", "yaml")
    kinds = "bindrequests,resourceclaims,resourceclaimtemplates,configmaps,gpupools"
    shown["objects"] = await installed.kubectl("get", kinds, "-A", "-o", "yaml")
    hidden = CANARIES | await secrets_of(installed)

    may_be_short = () if KEEPS_SHARES else ("logs of allocator",)  # it decides nothing there
    short = [name for name, text in shown.items() if len(text) < 200]
    assert [name for name in short if name not in may_be_short] == []
    about = ("logs of node-agent", "explain", "trace", "the recording", "traces", "objects")
    assert [name for name in about if "runs" not in shown[name]] == []
    assert len(hidden) > 15
    assert [
        (name, where)
        for name, secret in hidden.items()
        for where, text in shown.items()
        if secret in text or base64.b64encode(secret.encode()).decode() in text
    ] == []


async def secrets_of(installed: Cluster) -> dict[str, str]:
    """Passwords, keys and tokens of the installation, by name."""
    found = {
        f"{one['metadata']['name']} {key}": base64.b64decode(text).decode()
        for one in await installed.objects("secrets", "-n", NAMESPACE)
        for key, text in one["data"].items()
        if "password" in key or key in ("tls.key", "issuer-seed")
    }
    for account in ("claim-controller", "node-agent"):
        (pod, *_) = await installed.objects(
            "pods", "-n", NAMESPACE, "-l", f"app.kubernetes.io/name=dray-{account}"
        )
        found[f"token of {account}"] = await installed.kubectl(
            "exec", "-n", NAMESPACE, pod["metadata"]["name"], "--", "python", "-c",
            "print(open('/var/run/secrets/kubernetes.io/serviceaccount/token').read(), end='')",
        )  # fmt: skip
    return found


@OF_DECISIONS
async def test_the_metrics_of_all_services_are_well_formed(installed: Cluster) -> None:
    """But for those of DCGM's exporter: promtool wants other names for their labels."""
    pods = await installed.objects("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/part-of=dray")
    services = [
        one
        for one in pods
        if one["status"]["phase"] == "Running" and "nats" not in one["metadata"]["name"]
    ]
    pages = {}
    for pod in services:
        name = pod["metadata"]["name"]
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}:8080/proxy/metrics"
        pages[name] = await installed.kubectl("get", "--raw", path)
        own = "".join(
            line for line in pages[name].splitlines(keepends=True) if "DCGM_FI_" not in line
        )
        assert await run(["promtool", "check", "metrics"], stdin=own) == "", name

    everything = "".join(pages.values())
    asked = {name for row in ROWS.values() for panel in row for query in panel.queries
             for name in re.findall(r"\bdray_[a-z_]+", query[0])}  # fmt: skip
    assert len(asked) > 20
    absent = {name for name in asked if not re.search(rf"^{name}[{{ ]", everything, re.MULTILINE)}
    assert absent == set()


@OF_DECISIONS
async def test_exemplars_of_latencies_name_traces_that_were_exported(installed: Cluster) -> None:
    script = f"""
from urllib.request import Request, urlopen
asked = Request("http://127.0.0.1:8080/metrics", headers={OPEN_METRICS!r})
print(urlopen(asked).read().decode())
"""
    named: dict[str, set[str]] = {}
    for pod in await installed.objects(
        "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/part-of=dray"
    ):
        service = pod["metadata"]["labels"]["app.kubernetes.io/name"]
        if service not in ("dray-webhook", "dray-claim-controller", "dray-node-agent"):
            continue
        page = await installed.kubectl(
            "exec", "-n", NAMESPACE, pod["metadata"]["name"], "--", "python", "-c", script
        )
        named.setdefault(service, set()).update(re.findall(r'# {trace_id="(\w+)"}', page))
    exported = b"".join(SPANS)

    assert {service for service, traces in named.items() if traces} == named.keys()
    assert len(named) == 3
    for service, traces in named.items():
        assert {one for one in traces if bytes.fromhex(one) not in exported} == set(), service


async def test_no_service_was_refused_anything_and_operators_their_probes_alone(
    installed: Cluster,
) -> None:
    requests = installed.audited([*ACCOUNTS, OPERATOR])

    users = {one.user for one in requests}
    assert {OPERATOR, *ACCOUNTS[:3]} <= users  # claim-controller, node-agent, setup
    assert ACCOUNTS[-1] not in users  # the webhook
    # The doctor asks by dry runs what the API server keeps, and for certificates, whose Secrets
    # have private keys, too: it says that it may not.
    assert [
        (one.user, one.verb, one.path)
        for one in requests
        if one.forbidden
        and not (one.user == OPERATOR and ("dryRun=All" in one.path or one.resource == "secrets"))
    ] == []


async def test_a_user_without_a_role_is_refused_with_the_role_to_ask_for(
    installed: Cluster, operator: Path
) -> None:
    await installed.kubectl("delete", "rolebinding", "dray-operators", "-n", NAMESPACE)

    with pytest.raises(CommandError, match=r"may not read the Secret dray-operator in dray-system"):
        await dray(operator, "record", os.devnull, "--for", "1s")
