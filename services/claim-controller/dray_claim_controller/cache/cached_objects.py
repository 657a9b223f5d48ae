"""Watched objects as they were last seen. Pure."""

from dataclasses import dataclass, field, replace
from typing import Self

import msgspec

from dray.api import json_codec
from dray.api.claims import Claim
from dray.api.names import CLAIM_FINALIZER, DEVICE_CLASS, DRIVER, VOID
from dray.api.pods import HostPort, Pod
from dray.kube.convert import host_ports, requests_of
from dray.kube.convert_metadata import attempt_annotation
from dray.kube.ports import Object, Resource
from dray_claim_controller.cache.anti_affinity import AntiAffinityTerm, anti_affinity_terms

_READ = msgspec.json.Decoder(tuple[str, dict[str, int], tuple[HostPort, ...], Pod | None])
TERMINAL = ("Succeeded", "Failed")
"""Phases of pods that have released their resources."""


@dataclass(frozen=True, slots=True, order=True)
class FactKey:
    """What a fact is about: the fact's name and the object's identity."""

    kind: str
    identity: str


@dataclass(frozen=True, slots=True)
class ObjectProblem:
    """An object that dray can't use as it is, and why."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    why: str

    @classmethod
    def of(cls, resource: Resource, metadata: Object, why: str) -> Self:
        """The problem of the object with this metadata."""
        namespace = metadata.get("namespace") or ""
        return cls(resource, namespace, metadata["name"], metadata["uid"], why)


@dataclass(frozen=True, slots=True)
class CachedResourceClaim:
    """A ResourceClaim as last seen, by the watch or in the response to an own write."""

    claim: Claim
    object: Object
    ours: bool
    watched_revision: int
    """Newest revision that the watch itself has shown."""

    @property
    def written_void(self) -> int:
        """The highest attempt that the claim's annotation voids; ``claim.void`` is higher if the
        annotation could not be written."""
        return attempt_annotation(self.object, VOID)

    @property
    def as_written(self) -> Claim:
        """The claim, with attempts void by its annotation alone."""
        return msgspec.structs.replace(self.claim, void=self.written_void)

    @property
    def protected(self) -> bool:
        """Whether the claim has the finalizer that protects its allocation."""
        return CLAIM_FINALIZER in (self.object["metadata"].get("finalizers") or ())

    @property
    def allocation_watched(self) -> bool:
        """Whether the watch, not only the response to a write, has shown this revision."""
        return self.watched_revision >= self.claim.resource_version


@dataclass(frozen=True, slots=True)
class CachedPod:
    """A pod as last seen; of pods without dray's claims only their use of the node is kept."""

    uid: str
    node: str
    cpu_milli: int
    memory_bytes: int
    terminal: bool
    revision: int = 0
    pod: Pod | None = None
    object: Object = field(default_factory=dict)
    repels: tuple[AntiAffinityTerm, ...] = ()
    """Its required anti-affinity terms."""
    resources: dict[str, int] = field(default_factory=dict)
    """Further requests, as in ``dray.api.pods.PodNeeds.resources``."""
    ports: tuple[HostPort, ...] = ()
    fills_node: bool = False
    """Its requests can't be read, so it counts as using the whole node."""


def unreadable_pod(obj: Object, known: CachedPod | None, revision: int) -> CachedPod:
    """A pod that can't be read keeps its last state. One that was never read counts as using its
    whole node."""
    spec = obj.get("spec")
    node = spec.get("nodeName") if isinstance(spec, dict) else None
    node = node if isinstance(node, str) else ""
    if known is not None:
        return replace(known, revision=revision, node=node or known.node)
    return CachedPod(
        uid=obj["metadata"]["uid"],
        node=node,
        cpu_milli=0,
        memory_bytes=0,
        terminal=False,
        revision=revision,
        fills_node=True,
    )


def cached_pod(obj: Object, pod: Pod | None, revision: int, *, ours: bool) -> CachedPod:
    """The cached form of a pod. ``pod``: the same, converted; None if it refers to no claim."""
    spec = obj["spec"]
    status = obj.get("status") or {}
    taken = requests_of(spec, status)
    ports = host_ports(spec)
    json_codec.checked((spec.get("nodeName") or "", taken.resources, ports, pod), _READ)
    return CachedPod(
        uid=obj["metadata"]["uid"],
        node=spec.get("nodeName") or "",
        cpu_milli=taken.cpu_milli,
        memory_bytes=taken.memory_bytes,
        terminal=status.get("phase") in TERMINAL,
        revision=revision,
        pod=pod if ours else None,
        object=obj if pod is not None else {},
        repels=anti_affinity_terms(obj),
        resources=taken.resources,
        ports=ports,
    )


def is_ours(claim: Claim) -> bool:
    """Whether a claim requests dray's class or holds a device of dray's driver. An unreadable claim
    may do so."""
    if claim.pool or claim.spec.unreadable:
        return True
    if any(request.device_class == DEVICE_CLASS for request in claim.spec.requests):
        return True
    return claim.allocation is not None and any(
        device.id.driver == DRIVER for device in claim.allocation.devices
    )
