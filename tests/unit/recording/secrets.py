"""Kubernetes objects with secrets wherever no decision looks, for any object that dray records."""

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from dray.kube.ports import Object

SECRET = "hunter2"
"""In every text that must not be recorded."""
_TEXTS = st.text(max_size=8).map(lambda text: f"{text}{SECRET}")
SECRETS = st.recursive(
    _TEXTS,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(_TEXTS, inner, min_size=1, max_size=3)
    ),
    max_leaves=4,
)
_UNKNOWN = ("someFieldOfALaterKubernetes", "x-anything")
_METADATA = ("managedFields", "selfLink")
_CONTAINER = (
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "securityContext",
    "startupProbe",
    "terminationMessagePath",
    "volumeDevices",
    "volumeMounts",
    "workingDir",
)
_POD_SPEC = (
    "dnsConfig",
    "ephemeralContainers",
    "hostAliases",
    "hostname",
    "hostnameOverride",
    "imagePullSecrets",
    "readinessGates",
    "runtimeClassName",
    "securityContext",
    "serviceAccountName",
    "subdomain",
)
_POD_STATUS = ("message", "reason", "podIP", "podIPs", "hostIP", "ephemeralContainerStatuses")
_CONTAINER_STATUS = ("image", "imageID", "state", "lastState", "containerID")
_CONDITION = ("message", "lastTransitionTime", "lastProbeTime")
_NODE_STATUS = ("addresses", "images", "nodeInfo", "volumesAttached", "config")

Draw = Callable[[st.SearchStrategy[Any]], Any]


def salted(plural: str, obj: Object, draw: Draw) -> Object:
    """The object with secrets in every field that no decision reads."""
    made = copy.deepcopy(obj)
    _fill(made, (), draw)
    metadata = made.setdefault("metadata", {})
    _fill(metadata, _METADATA, draw)
    annotations = metadata.setdefault("annotations", {})
    annotations["kubectl.kubernetes.io/last-applied-configuration"] = draw(_TEXTS)
    annotations[f"example.com/{SECRET}"] = draw(_TEXTS)
    if plural == "pods":
        _salt_pod(made, draw)
    elif plural == "nodes":
        _fill(made.setdefault("spec", {}), ("providerID", "podCIDRs"), draw)
        _fill(made.setdefault("status", {}), _NODE_STATUS, draw)
        _fill_each(made["status"].get("conditions"), _CONDITION, draw)
    elif plural == "resourceclaims" and "status" in made:
        _fill(made["status"], (), draw)
        _fill_each(made["status"].get("devices"), ("data", "networkData"), draw)
    elif plural == "resourceclaimtemplates":
        _fill(made["spec"]["metadata"], ("managedFields",), draw)
        made["spec"]["metadata"]["annotations"] = {f"example.com/{SECRET}": draw(_TEXTS)}
    return made


def _salt_pod(pod: Object, draw: Draw) -> None:
    spec = pod.setdefault("spec", {})
    for containers in (spec.get("containers"), spec.get("initContainers")):
        _fill_each(containers, _CONTAINER, draw)
    for volume in spec.get("volumes") or ():
        for kind in [name for name in volume if name != "name"]:
            volume[kind] = draw(SECRETS)
    _fill(spec, _POD_SPEC, draw)
    if "status" in pod:
        status = pod["status"]
        _fill(status, _POD_STATUS, draw)
        _fill_each(status.get("conditions"), _CONDITION, draw)
        for statuses in ("containerStatuses", "initContainerStatuses"):
            _fill_each(status.get(statuses), _CONTAINER_STATUS, draw)


def _fill_each(values: list[Object] | None, names: tuple[str, ...], draw: Draw) -> None:
    for value in values or ():
        _fill(value, names, draw)


def _fill(value: Object, names: tuple[str, ...], draw: Draw) -> None:
    value.update(dict.fromkeys((*names, *_UNKNOWN), draw(SECRETS)))
