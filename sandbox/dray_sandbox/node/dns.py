"""Service names: CoreDNS runs on this machine, and a Service points to it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from dray_sandbox.node.network import DNS_SERVICE

CLUSTER_DOMAIN = "cluster.local"
_KINDS = ("udp", "tcp")
_READ_BY_DNS: Mapping[str, Sequence[str]] = {
    "": ("services", "pods", "namespaces", "nodes"),
    "discovery.k8s.io": ("endpointslices",),
}


def corefile(address: str, port: int, health_port: int, kubeconfig: str) -> str:
    """Corefile: CoreDNS resolves names of Services and pods; this machine resolves all others."""
    return f""".:{port} {{
    bind {address}
    errors
    health {address}:{health_port}
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        fallthrough in-addr.arpa
    }}
    cache 5
    forward . /etc/resolv.conf
}}
"""


def objects(user: str, address: str, port: int) -> list[dict[str, Any]]:
    """The Service of CoreDNS, which runs outside the cluster, and the roles of ``user``."""
    metadata = {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}}
    ports = [{"name": f"dns-{kind}", "protocol": kind.upper(), "port": 53} for kind in _KINDS]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"clusterIP": DNS_SERVICE, "ports": ports},
    }
    labels = {"kubernetes.io/service-name": "kube-dns"}
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata | {"labels": labels},
        "addressType": "IPv4",
        "ports": [one | {"port": port} for one in ports],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
    }
    return [service, endpoints, *_reader(user, _READ_BY_DNS)]


def _reader(user: str, resources: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """A role that may list and watch, and its binding."""
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [api], "resources": list(names), "verbs": ["get", "list", "watch"]}
        for api, names in resources.items()
    ]
    role = {"apiVersion": f"{group}/v1", "metadata": {"name": user}}
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": user}
    subject = {"apiGroup": group, "kind": "User", "name": user}
    return [
        role | {"kind": "ClusterRole", "rules": rules},
        role | {"kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]},
    ]
