"""Watched objects as they were last seen. Pure."""

from dataclasses import dataclass
from typing import Self

import msgspec
from msgspec.structs import replace

from dray.api import json_codec
from dray.api.claims import Claim
from dray.api.names import CLAIM_FINALIZER, DEVICE_CLASS, DRIVER, SHAPE
from dray.api.pods import TERMINAL_PHASES, HostPort, Pod
from dray.kube.convert import Requests, host_ports, is_resized, requests_of
from dray.kube.object_text import object_from, text_of
from dray.kube.ports import Object, Resource
from dray_claim_controller.cache.anti_affinity import AntiAffinityTerm, anti_affinity_terms

_READ = msgspec.json.Decoder(tuple[str, dict[str, int], tuple[HostPort, ...], Pod | None])
"""Decodes what ``checked_pod`` checks."""


class FactKey(msgspec.Struct, frozen=True, order=True, gc=False):
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


class CachedResourceClaim(msgspec.Struct, frozen=True, gc=False):
    """A ResourceClaim as last seen, by the watch or in the response to an own write."""

    claim: Claim
    text: bytes
    """The object's text."""
    ours: bool
    watched_revision: int
    """Newest revision that the watch itself has shown."""
    written_void: int
    """The highest attempt that the claim's annotation voids; ``claim.void`` is higher if the
    annotation could not be written."""

    @property
    def object(self) -> Object:
        """The object; reading it decodes the text."""
        return object_from(self.text)

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


class CachedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod as last seen; for pods without claims, only their use of the node is kept."""

    uid: str
    node: str
    cpu_milli: int
    memory_bytes: int
    terminal: bool
    revision: int = 0
    pod: Pod | None = None
    text: bytes = b""
    """Whether the kubelet has made the pod's sandbox, which it does after it prepared the
    claims."""
    has_sandbox: bool = False
    """Whether the kubelet has made its sandbox, after it prepared its claims."""
    has_shape: bool = False
    """Whether the webhook has seen that it asks for GPUs."""
    templates: tuple[str, ...] = ()
    """``namespace/name`` of the ResourceClaimTemplates that it refers to, until it has ended."""
    repels: tuple[AntiAffinityTerm, ...] = ()
    """Its required anti-affinity terms."""
    resources: dict[str, int] = {}
    """Further requests, as in ``dray.api.pods.PodNeeds.resources``."""
    ports: tuple[HostPort, ...] = ()
    fills_node: bool = False
    """Its requests can't be read, so it counts as using the whole node."""

    @property
    def is_member(self) -> bool:
        """Whether the webhook has seen that it belongs to a PodGroup."""
        return self.pod is not None and self.pod.member is not None and bool(self.pod.request_id)

    @property
    def object(self) -> Object:
        """The object; empty without claims. Reading it decodes the text."""
        return object_from(self.text) if self.text else {}


def unreadable_pod(obj: Object, revision: int) -> CachedPod:
    """The cached form of a pod that can't be read: it counts as using its whole node until it has
    ended."""
    spec, status = obj.get("spec"), obj.get("status")
    node = spec.get("nodeName") if isinstance(spec, dict) else None
    phase = status.get("phase") if isinstance(status, dict) else None
    return CachedPod(
        uid=obj["metadata"]["uid"],
        node=node if isinstance(node, str) else "",
        cpu_milli=0,
        memory_bytes=0,
        terminal=phase in TERMINAL_PHASES if isinstance(phase, str) else False,
        revision=revision,
        fills_node=True,
    )


def cached_pod(obj: Object, pod: Pod | None, revision: int, *, text: bytes = b"") -> CachedPod:
    """The cached form of a pod. ``pod``: the converted pod; None if it refers to no claim.
    ``text``: the object's text; if empty, it is made from the object."""
    spec = obj["spec"]
    status = obj.get("status") or {}
    if pod is None or is_resized(status):
        taken = requests_of(spec, status)
    else:
        taken = Requests(pod.needs.cpu_milli, pod.needs.memory_bytes, pod.needs.resources)
    terminal = status.get("phase") in TERMINAL_PHASES
    return CachedPod(
        uid=obj["metadata"]["uid"],
        node=spec.get("nodeName") or "",
        cpu_milli=taken.cpu_milli,
        memory_bytes=taken.memory_bytes,
        terminal=terminal,
        revision=revision,
        pod=pod,
        text=b"" if pod is None else text or text_of(obj),
        has_sandbox=pod is not None and _has_sandbox(obj),
        has_shape=pod is not None and _has_shape(obj),
        templates=() if terminal else _templates(obj),
        repels=anti_affinity_terms(obj) if spec.get("affinity") else (),
        resources=taken.resources,
        ports=host_ports(spec) if pod is None else pod.needs.ports,
    )


def with_object(cached: CachedPod, obj: Object) -> CachedPod:
    """A pod that refers to claims, with what its object adds to the other fields."""
    return replace(
        cached,
        text=text_of(obj),
        has_sandbox=_has_sandbox(obj),
        has_shape=_has_shape(obj),
        templates=() if cached.terminal else _templates(obj),
    )


def _has_shape(obj: Object) -> bool:
    return SHAPE in (obj["metadata"].get("annotations") or {})


def _templates(obj: Object) -> tuple[str, ...]:
    """``namespace/name`` of the templates that a pod refers to."""
    entries = obj["spec"].get("resourceClaims")
    if not entries:
        return ()
    namespace = obj["metadata"]["namespace"]
    return tuple([f"{namespace}/{one.get('resourceClaimTemplateName') or ''}" for one in entries])


def checked_pod(cached: CachedPod) -> CachedPod:
    """The pod, after a check of the types of the values from its object. Raises
    msgspec.ValidationError."""
    json_codec.checked((cached.node, cached.resources, cached.ports, cached.pod), _READ)
    return cached


def _has_sandbox(obj: Object) -> bool:
    """Decided by the condition; by the phase if the kubelet does not write the condition."""
    status = obj.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodReadyToStartContainers":
            return bool(condition.get("status") == "True")
    return status.get("phase") not in (None, "", "Pending")


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
