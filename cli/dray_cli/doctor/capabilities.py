"""Which features a cluster's Kubernetes has, and what users notice if one is missing."""

import re
from dataclasses import dataclass

from dray.messages.facts import ClusterObserved
from dray_cli.doctor.findings import Finding, Grade

AREA = "Kubernetes"
_OLDEST = (1, 34)


@dataclass(frozen=True, slots=True)
class _Capability:
    name: str
    """Field of ClusterObserved."""
    subject: str
    without: str
    """What is different if the server lacks the feature, and how to get it."""


_CAPABILITIES = (
    _Capability(
        "consumable_capacity",
        "fractions of a card",
        "pods get whole cards: allowMultipleAllocations or capacity requests are dropped "
        "(feature gate DRAConsumableCapacity, on by default from 1.36)",
    ),
    _Capability(
        "device_taints",
        "device taints",
        "only pools with dedicated: true work, and hand-written claims that may match their cards "
        "are denied: the taint tensor-fusion.ai/owner, which keeps kube-scheduler off them, "
        "is dropped (feature gate DRADeviceTaints, on by default from 1.36)",
    ),
    _Capability(
        "allocation_timestamp",
        "time of allocation",
        "claims do not say when they were allocated; nothing else is missing",
    ),
    _Capability(
        "binding_conditions",
        "devices that make a pod wait",
        "bindingConditions of devices are dropped (feature gate DRADeviceBindingConditions, on by "
        "default from 1.36)",
    ),
    _Capability(
        "partitionable_devices",
        "devices that share counters",
        "sharedCounters of slices are dropped (feature gate DRAPartitionableDevices, on by "
        "default from 1.36)",
    ),
    _Capability(
        "prioritized_list",
        "alternatives in a request",
        "firstAvailable is dropped (feature gate DRAPrioritizedList)",
    ),
    _Capability(
        "extended_resources",
        "classes as extended resources",
        "extendedResourceName of a DeviceClass is dropped (feature gate DRAExtendedResource, on "
        "by default from 1.36)",
    ),
    _Capability(
        "list_attributes",
        "attributes of several values",
        "lists in attributes are refused (feature gate DRAListTypeAttributes, off by default)",
    ),
)


def capabilities(cluster: ClusterObserved) -> list[Finding]:
    """What the probe found, one finding per capability; none of them stops dray."""
    served = ", ".join(cluster.served_versions)
    return [
        _version(cluster.version, served),
        *(_judged(cluster, capability) for capability in _CAPABILITIES),
    ]


def published_capabilities(published: ClusterObserved) -> list[Finding]:
    """What the claim-controller has found, for a user who may not send dry-run requests."""
    text = "as the claim-controller has found: this user may not send dry-run requests"
    return [Finding(AREA, "what it keeps", "ok", text), *capabilities(published)]


def _version(text: str, served: str) -> Finding:
    subject = f"{text}, resource.k8s.io {served}"
    found = re.match(r"v?(\d+)\.(\d+)", text)
    if found is not None and (int(found[1]), int(found[2])) < _OLDEST:
        return Finding(AREA, subject, "broken", "dray needs Kubernetes 1.34 or newer")
    return Finding(AREA, subject, "ok")


def _judged(cluster: ClusterObserved, capability: _Capability) -> Finding:
    kept = getattr(cluster, capability.name)
    if kept is None:
        text = "this user may not create DeviceClasses, so it could not be asked"
        return Finding(AREA, capability.subject, "unseen", text)
    grade: Grade = "ok" if kept else "lesser"
    return Finding(AREA, capability.subject, grade, "" if kept else capability.without)


def disagreement(probed: ClusterObserved, published: ClusterObserved) -> Finding | None:
    """A finding if the claim-controller's newest probe is wrong or outdated; else None."""
    named = ["version", *(capability.name for capability in _CAPABILITIES)]
    differing = [
        f"{name} {getattr(published, name)} there, {getattr(probed, name)} here"
        for name in named
        if getattr(probed, name) is not None
        and getattr(published, name) is not None
        and getattr(probed, name) != getattr(published, name)
    ]
    if not differing:
        return None
    text = (
        f"{'; '.join(differing)}: after an upgrade of Kubernetes it asks again within seconds; "
        "if this stays, see its log, or restart it"
    )
    return Finding(AREA, "the claim-controller's findings", "broken", text)
