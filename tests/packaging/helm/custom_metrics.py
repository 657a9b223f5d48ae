"""A stand-in for an adapter of custom metrics, such as Prometheus' adapter: its values are what the
pods' own pages say at that moment, and what a test adds."""

import json
import re
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import urlopen

import yaml
from tests.packaging.helm.installation import Cluster

from dray.runtime.certificates import issue
from dray_sandbox.controlplane.build import find_kubectl

GROUP, VERSION = "custom.metrics.k8s.io", "v1beta2"
_ROOT = f"/apis/{GROUP}/{VERSION}"
_QUERY = re.compile(rf"{_ROOT}/namespaces/([^/]+)/pods/\*/([^/]+)")
_NAME = "custom-metrics"


@contextmanager
def custom_metrics(cluster: Cluster, folder: Path, added: Mapping[str, int]) -> Iterator[list[str]]:
    """Serve ``custom.metrics.k8s.io`` where pods reach the API server; the manifests that have the
    API server hand it on. ``folder`` is for the certificate. ``added``: by metric, what the first
    pod has in addition."""
    content = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    address = str(urlsplit(content["clusters"][0]["cluster"]["server"]).hostname)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(_answer(cluster.kubeconfig, self.path, added)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((address, 0), Handler)
    server.socket = _tls(address, folder).wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield _manifests(address, server.server_port)
    finally:
        server.shutdown()
        server.server_close()


def _tls(address: str, folder: Path) -> ssl.SSLContext:
    issued = issue("an adapter's CA", _NAME, [address], timedelta(days=1))
    file = folder / "adapter.pem"
    file.write_bytes(issued.certificate + issued.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def _manifests(address: str, port: int) -> list[str]:
    named = {"name": _NAME, "namespace": "default"}
    api = {
        "group": GROUP,
        "version": VERSION,
        "service": named | {"port": 443},
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    ports = [{"name": "https", "port": port}]
    service = {"ports": [{"name": "https", "port": 443, "targetPort": port}]}
    of_service = {"labels": {"kubernetes.io/service-name": _NAME}}
    addresses = {"addressType": "IPv4", "endpoints": [{"addresses": [address]}], "ports": ports}
    return [
        yaml.safe_dump({"apiVersion": version, "kind": kind, "metadata": metadata, **rest})
        for version, kind, metadata, rest in (
            ("v1", "Service", named, {"spec": service}),
            ("discovery.k8s.io/v1", "EndpointSlice", named | of_service, addresses),
            ("apiregistration.k8s.io/v1", "APIService", {"name": f"{VERSION}.{GROUP}"},
             {"spec": api}),
        )
    ]  # fmt: skip


def _answer(kubeconfig: str, path: str, added: Mapping[str, int]) -> dict[str, Any]:
    url = urlsplit(unquote(path))
    if (query := _QUERY.fullmatch(url.path)) is None:
        return {"kind": "APIResourceList", "groupVersion": f"{GROUP}/{VERSION}", "resources": []}
    namespace, metric = query.groups()
    (selector,) = parse_qs(url.query)["labelSelector"]
    items = [
        {
            "describedObject": {"apiVersion": "v1", "kind": "Pod", "name": name},
            "metric": {"name": metric},
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "value": str(value if number else value + added.get(metric, 0)),
        }
        for number, (name, value) in enumerate(_values(kubeconfig, namespace, selector, metric))
    ]
    return {"kind": "MetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "items": items}


def _values(
    kubeconfig: str, namespace: str, selector: str, metric: str
) -> Iterator[tuple[str, int]]:
    """By pod that is ready: what its page says, a whole number."""
    program = str(find_kubectl())
    get = [program, "--kubeconfig", kubeconfig, "get", "pods", "-n", namespace, "-l", selector]
    printed = subprocess.run([*get, "-o", "json"], capture_output=True, check=True).stdout
    for pod in json.loads(printed)["items"]:
        conditions = {one["type"]: one["status"] for one in pod["status"]["conditions"]}
        if conditions.get("Ready") != "True":
            continue
        with urlopen(f"http://{pod['status']['podIP']}:8080/metrics", timeout=5) as page:
            found = re.search(rf"^{metric} (\S+)$", page.read().decode(), re.MULTILINE)
        assert found, f"{pod['metadata']['name']} has no {metric}"
        yield pod["metadata"]["name"], round(float(found[1]))
