"""One object as it was last seen. Pure."""

from dataclasses import dataclass, field, replace
from typing import Self

import msgspec

from dray.domain import json_codec
from dray.domain.claims import Claim
from dray.domain.names import CLAIM_FINALIZER, DEVICE_CLASS, DRIVER, VOID
from dray.domain.pods import HostPort, Pod
from dray.kube.convert import host_ports, requests_of
from dray.kube.convert_metadata import attempt_annotation
from dray.kube.ports import Object, Resource
from dray_claim_controller.cache.anti_affinity import AntiAffinityTerm, anti_affinity_terms

_READ = msgspec.json.Decoder(tuple[str, dict[str, int], tuple[HostPort, ...], Pod | None])
TERMINAL = ("Succeeded", "Failed")
"""Phases of pods that use nothing any more."""


@dataclass(frozen=True, slots=True, order=True)
class FactKey:
    """What a fact is about: the fact's name and the object's identity."""

    kind: str
    identity: str


@dataclass(frozen=True, slots=True)
class ObjectProblem:
    """An object that dray can't take as it is, and why."""

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
    """A ResourceClaim as last seen, by the watch or in the answer to an own write."""

    claim: Claim
    object: Object
    ours: bool
    watched_revision: int
    """Newest revision that the watch itself has shown."""

    @property
    def written_void(self) -> int:
        """Attempts up to this one are void by the claim's annotation: ``claim.void`` says more
        where that could not be written."""
        return attempt_annotation(self.object, VOID)

    @property
    def as_written(self) -> Claim:
        """The claim as its object says it is."""
        return msgspec.structs.replace(self.claim, void=self.written_void)

    @property
    def protected(self) -> bool:
        """Whether the finalizer that keeps an allocation from leaking is on."""
        return CLAIM_FINALIZER in (self.object["metadata"].get("finalizers") or ())

    @property
    def allocation_watched(self) -> bool:
        """Whether the watch, not only an answer, has shown the claim as it is here."""
        return self.watched_revision >= self.claim.resource_version


@dataclass(frozen=True, slots=True)
class CachedPod:
    """A pod as last seen; of foreign pods only what they take of their node is kept."""

    uid: str
    node: str
    cpu_milli: int
    memory_bytes: int
    terminal: bool
    revision: int = 0
    pod: Pod | None = None
    object: Object = field(default_factory=dict)
    repels: tuple[AntiAffinityTerm, ...] = ()
    """Whom it keeps away from where it is."""
    resources: dict[str, int] = field(default_factory=dict)
    """What else it takes, as in ``dray.domain.pods.PodNeeds.resources``."""
    ports: tuple[HostPort, ...] = ()
    fills_node: bool = False
    """What it takes can't be read: nothing else is to be placed beside it."""


def unreadable_pod(obj: Object, known: CachedPod | None, revision: int) -> CachedPod:
    """A pod that can't be read: what was known of it stays. Of an unknown one only its node counts,
    all of it."""
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
    """The object as it is seen. ``pod``: the same, read; None where it refers to no claim."""
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
    """Whether a claim asks for our class or holds a device of our driver. One that can't be read
    may do so."""
    if claim.pool or claim.spec.unreadable:
        return True
    if any(request.device_class == DEVICE_CLASS for request in claim.spec.requests):
        return True
    return claim.allocation is not None and any(
        device.id.driver == DRIVER for device in claim.allocation.devices
    )
