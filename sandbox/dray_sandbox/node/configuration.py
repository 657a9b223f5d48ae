"""Configuration files of a node's programs. Pure: values in, texts out."""

import json
from collections.abc import Mapping
from typing import Any

from dray_sandbox.node.dns import CLUSTER_DOMAIN
from dray_sandbox.node.network import DNS_SERVICE

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
"""The path of containerd's socket in the node."""
SANDBOX_IMAGE = "registry.k8s.io/pause:3.10"
KUBELET_HEALTH_PORT, PROXY_METRICS_PORT, PROXY_HEALTH_PORT = 10248, 10249, 10256
_LEASE_S = 20
"""How long a kubelet's lease lasts; it is renewed after a quarter of that."""


def containerd(cni_plugins: str, cni: str, mirrors: str, *, lowers_oom: bool) -> str:
    """containerd.toml.

    ``cni`` and ``mirrors`` are the folders of the files that ``network`` and ``mirror`` return.
    ``lowers_oom``: whether this process may lower the OOM score of another (CAP_SYS_RESOURCE). If
    it may not, runc fails when it is asked to.
    """
    path = json.dumps  # TOML's basic strings are JSON's
    return f"""version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
address = {path(CONTAINERD_SOCKET)}

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = {path(SANDBOX_IMAGE)}

[plugins."io.containerd.cri.v1.images".registry]
config_path = {path(mirrors)}

[plugins."io.containerd.cri.v1.runtime"]
enable_cdi = true
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
restrict_oom_score_adj = {"false" if lowers_oom else "true"}

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = [{path(cni_plugins)}]
conf_dir = {path(cni)}

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def mirror(url: str) -> str:
    """hosts.toml for every registry: all images come from ``url``."""
    return f'[host."{url}"]\ncapabilities = ["pull", "resolve"]\n'


def network(pods: str, first_pod: str) -> str:
    """The CNI network of a node's pods: each has a link to the node, which routes."""
    addresses = {
        "type": "host-local",
        "dataDir": "/run/cni",
        "ranges": [[{"subnet": pods, "rangeStart": first_pod}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugins = [
        {"type": "ptp", "ipam": addresses},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return _json({"cniVersion": "1.0.0", "name": "pods", "plugins": plugins})


def kubelet(group: str, client_authority: str, resolver: str) -> str:
    """KubeletConfiguration; ``group`` is the cgroup above its pods'."""
    return _json(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": group,
            "failCgroupV1": False,  # true by default since 1.35
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": client_authority},
            },
            "authorization": {"mode": "Webhook"},
            "healthzBindAddress": "0.0.0.0",
            "healthzPort": KUBELET_HEALTH_PORT,
            "nodeLeaseDurationSeconds": _LEASE_S,
            # How soon an unhealthy GPU lowers the Allocatable of its Node. An unchanged status is
            # written as rarely as by default.
            "nodeStatusUpdateFrequency": "500ms",
            "nodeStatusReportFrequency": "5m",
            # The disk is this machine's; other programs fill it, too.
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
            "serializeImagePulls": False,
            "clusterDNS": [DNS_SERVICE],
            "clusterDomain": CLUSTER_DOMAIN,
            "resolvConf": resolver,
        }
    )


def resolver() -> str:
    """resolv.conf of nodes, and of pods that use their node's: Service names resolve there, too."""
    return f"search svc.{CLUSTER_DOMAIN} {CLUSTER_DOMAIN}\nnameserver {DNS_SERVICE}\n"


def kube_proxy(kubeconfig: str, node: str) -> str:
    """KubeProxyConfiguration."""
    return _json(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": kubeconfig},
            "hostnameOverride": node,
            "healthzBindAddress": f"0.0.0.0:{PROXY_HEALTH_PORT}",
            "metricsBindAddress": f"0.0.0.0:{PROXY_METRICS_PORT}",
            # Keep the settings of the node's kernel.
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }
    )


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"
