"""The doctor's checks of nodes with GPUs: whether they are ready, and their software."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from dray.api.names import DRIVER, DRIVER_VERSION_LABEL, GPU_RESOURCE, GPU_SHARE_RESOURCE
from dray.api.pods import TERMINAL_PHASES
from dray.kube.ports import CLASSES, NODES, PODS, SLICES, Kube, Object
from dray.reasons import name_list
from dray_cli.doctor.findings import Finding, Grade, since
from dray_cli.text import counted

AREA = "Nodes with GPUs"
_OLDEST_KUBELET = (1, 34)
_RUNTIME = re.compile(r"([a-z-]+)://v?(\d+)\.(\d+)")
_KUBELET = re.compile(r"v(\d+)\.(\d+)")
_NVIDIAS_DRIVER = "gpu.nvidia.com"
_NVIDIAS_PLUGIN = "NVIDIA's device plugin"
_PLUGIN_LABELS = (
    "name=nvidia-device-plugin-ds",
    "app=nvidia-device-plugin-daemonset",
    "app.kubernetes.io/name=nvidia-device-plugin",
)
"""Labels of the plugin's pods: from its manifest, from the GPU Operator and from its chart."""
_PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"
"""The node's folder with every device plugin's socket. Other pods may have such labels, too."""
_PLUGIN_RESOURCE = re.compile(r"nvidia\.com/(gpu|mig-)")
_STAND_IN = "sandbox://"
_WITHOUT_CDI = {"containerd": (1, 7), "cri-o": (1, 23)}
"""By container runtime, the first version that supports the Container Device Interface."""
_CDI_IS_ON = {"containerd": (2, 0), "cri-o": (1, 28)}
"""By container runtime, the first version that has it on by default."""


async def gpu_nodes(kube: Kube) -> list[Finding]:
    """Check the nodes with GPUs of dray's driver; no findings if there are none."""
    slices = (await kube.list(SLICES, field_selector=f"spec.driver={DRIVER}")).objects
    drivers = {
        one["spec"]["nodeName"]: (one["metadata"].get("labels") or {}).get(DRIVER_VERSION_LABEL, "")
        for one in slices
        if one["spec"].get("nodeName")
    }
    nodes = [one for one in (await kube.list(NODES)).objects if one["metadata"]["name"] in drivers]
    if not nodes:
        return []
    return [
        ready_finding(nodes, time.time()),
        kubelets_finding(nodes),
        runtimes_finding(nodes),
        _drivers_finding(drivers),
        owners_finding(nodes, await _nvidias_programs(kube)),
        *plugin_finding(nodes, (await kube.list(CLASSES)).objects),
    ]


async def _nvidias_programs(kube: Kube) -> dict[str, str]:
    """By node, the NVIDIA program that gives GPUs to pods there."""
    found = {}
    for selector in _PLUGIN_LABELS:
        for pod in (await kube.list(PODS, label_selector=selector)).objects:
            if _is_device_plugin(pod):
                found[pod["spec"].get("nodeName", "")] = _NVIDIAS_PLUGIN
    driver = f"spec.driver={_NVIDIAS_DRIVER}"
    for one in (await kube.list(SLICES, field_selector=driver)).objects:
        found[one["spec"].get("nodeName", "")] = _NVIDIAS_DRIVER
    return found


def _is_device_plugin(pod: Object) -> bool:
    paths = [
        str((volume.get("hostPath") or {}).get("path", "")).rstrip("/")
        for volume in pod["spec"].get("volumes") or ()
    ]
    phase = (pod.get("status") or {}).get("phase")
    return _PLUGIN_FOLDER in paths and phase not in TERMINAL_PHASES


def ready_finding(nodes: Sequence[Object], now_unix_s: float) -> Finding:
    """Which of these nodes are not ready, and since when."""
    lost = [
        f"{node['metadata']['name']}{since(ready.get('lastTransitionTime', ''), now_unix_s)}"
        for node in nodes
        if (ready := _condition(node, "Ready")).get("status") != "True"
    ]
    if not lost:
        return Finding(AREA, "ready", "ok", counted(len(nodes), "node"))
    text = (
        f"{len(lost)} of {counted(len(nodes), 'node')} not: {name_list(lost)}; no pod is placed "
        "there. Does the kubelet run, and what does `kubectl describe node` say?"
    )
    return Finding(AREA, "ready", "lesser", text)


def kubelets_finding(nodes: Iterable[Object]) -> Finding:
    """Whether the kubelets support what dray needs: Kubernetes 1.34 or newer."""
    versions = _by_version(nodes, "kubeletVersion")
    old = _names(versions, lambda text: _number(_KUBELET, text) < _OLDEST_KUBELET)
    if not old:
        return Finding(AREA, "kubelet", "ok", _summary(versions))
    text = f"{_summary(versions)}: {name_list(old)} are older than 1.34 and can't prepare devices"
    return Finding(AREA, "kubelet", "broken", text)


def runtimes_finding(nodes: Iterable[Object]) -> Finding:
    """Whether the container runtimes support the Container Device Interface (CDI)."""
    versions = _by_version(nodes, "containerRuntimeVersion")
    subject, summary = "container runtime with CDI", _summary(versions)
    if without := _names(versions, lambda text: _cdi(text) == "broken"):
        text = (
            f"{summary}: {name_list(without)} have no CDI; upgrade to containerd 1.7 or CRI-O 1.23"
        )
        return Finding(AREA, subject, "broken", text)
    if unsure := _names(versions, lambda text: _cdi(text) == "lesser"):
        text = (
            f"{summary}: {name_list(unsure)} have CDI only if their configuration turns it on "
            "(containerd 1.7: enable_cdi = true)"
        )
        return Finding(AREA, subject, "lesser", text)
    unknown = _names(versions, lambda text: _cdi(text) == "unseen")
    return Finding(AREA, subject, "unseen" if unknown else "ok", summary)


def _drivers_finding(drivers: Mapping[str, str]) -> Finding:
    """The versions of NVIDIA's driver, by node."""
    versions: dict[str, list[str]] = {}
    for node, version in sorted(drivers.items()):
        versions.setdefault(version or "unknown", []).append(node)
    grade: Grade = "unseen" if set(versions) == {"unknown"} else "ok"
    return Finding(AREA, "NVIDIA driver", grade, _summary(versions))


def owners_finding(nodes: Iterable[Object], programs: Mapping[str, str]) -> Finding:
    """Whether NVIDIA's device plugin or DRA driver gives out the same GPUs. ``programs``: by node,
    which of them runs there. On nodes with dray's device plugin, only ``programs`` shows NVIDIA's:
    both plugins offer the same resource."""
    shared = [
        f"{name} ({what})"
        for node in nodes
        if (name := node["metadata"]["name"])
        and (what := programs.get(name) or _plugin_resource(node))
    ]
    if not shared:
        return Finding(AREA, "GPUs are dray's alone", "ok", "no other driver or device plugin")
    text = (
        f"not on {name_list(shared)}: two programs give the same GPUs to different pods; remove "
        "NVIDIA's device plugin or DRA driver from these nodes, or the nodes from dray"
    )
    return Finding(AREA, "GPUs are dray's alone", "broken", text)


def plugin_finding(nodes: Iterable[Object], classes: Iterable[Object]) -> list[Finding]:
    """Whether a DeviceClass has the resource of dray's device plugin as extended resource; no
    finding if no node runs the plugin."""
    offering = [
        node["metadata"]["name"]
        for node in nodes
        if GPU_SHARE_RESOURCE in ((node.get("status") or {}).get("capacity") or {})
    ]
    if not offering:
        return []
    subject = "device plugin"
    same = [
        one["metadata"]["name"]
        for one in classes
        if one["spec"].get("extendedResourceName") == GPU_RESOURCE
    ]
    if not same:
        return [Finding(AREA, subject, "ok", f"on {name_list(offering)}")]
    text = (
        f"{GPU_RESOURCE} is offered by dray's device plugin on {name_list(offering)}, and stands "
        f"for claims of DeviceClass {name_list(same)} (extendedResourceName): remove one of them"
    )
    return [Finding(AREA, subject, "broken", text)]


def _plugin_resource(node: Object) -> str:
    """A resource of NVIDIA's device plugin that the node offers; empty if there is none."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    own = (GPU_RESOURCE,) if GPU_SHARE_RESOURCE in allocatable else ()
    offered = (
        name
        for name, amount in sorted(allocatable.items())
        if str(amount) != "0" and name not in own
    )
    return next((name for name in offered if _PLUGIN_RESOURCE.match(name)), "")


def _cdi(runtime: str) -> Grade:
    if runtime.startswith(_STAND_IN):
        return "ok"
    found = _RUNTIME.match(runtime)
    if found is None or found[1] not in _CDI_IS_ON:
        return "unseen"
    number = (int(found[2]), int(found[3]))
    if number < _WITHOUT_CDI[found[1]]:
        return "broken"
    return "ok" if number >= _CDI_IS_ON[found[1]] else "lesser"


def _number(pattern: re.Pattern[str], text: str) -> tuple[int, int]:
    """Major and minor version; for a text without them, a version newer than all."""
    found = pattern.match(text)
    return (int(found[1]), int(found[2])) if found else (1 << 30, 0)


def _by_version(nodes: Iterable[Object], field: str) -> dict[str, list[str]]:
    """The names of the nodes by a version of their ``nodeInfo``."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        info = (node.get("status") or {}).get("nodeInfo") or {}
        found.setdefault(str(info.get(field) or "unknown"), []).append(node["metadata"]["name"])
    return dict(sorted(found.items()))


def _names(versions: Mapping[str, Sequence[str]], which: Callable[[str], bool]) -> list[str]:
    return [name for text, of in versions.items() if which(text) for name in of]


def _summary(versions: Mapping[str, Sequence[str]]) -> str:
    """Such as ``v1.36.3 on 2 nodes, v1.35.1 on 1 node``."""
    return ", ".join(f"{text} on {counted(len(of), 'node')}" for text, of in versions.items())


def _condition(obj: Object, kind: str) -> Object:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})
