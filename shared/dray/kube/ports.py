"""The Kubernetes API as dray needs it, with plain JSON objects.

Objects are dicts as the server wrote them: typed models cost a millisecond and 78 KB per slice.
``convert`` makes ``dray.api`` values from the objects that decisions need.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, Self

import msgspec

from dray.api.errors import DrayError, PermanentError, TemporaryError
from dray.api.names import API_GROUP

Object = dict[str, Any]
"""A Kubernetes object as JSON. Containers in opaque parts are ``msgspec.Raw`` if they are nested
too deep or if there are too many, see ``dray.api.json_codec``. ``fieldsV1`` of managed fields may
be left out."""
NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})


class KubeError(DrayError):
    """A failed request to the API server: always one of the subclasses below."""


class KubeUnavailableError(KubeError, TemporaryError):
    """The API server can't be reached, is overloaded, or failed: the outcome is unknown.

    ``retry_after_s`` is the server's ``Retry-After``, or 0.
    """

    def __init__(self, message: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ConflictError(KubeError, TemporaryError):
    """The object's resourceVersion moved on (409), or a precondition failed: read it again."""


class NotFoundError(KubeError, PermanentError):
    """No such object (404)."""


class NotServedError(NotFoundError):
    """The server has nothing at this path (404): there is no such kind, or a proxy answered. The
    object may exist."""


class AlreadyExistsError(KubeError, PermanentError):
    """An object with that name exists (409 AlreadyExists)."""


class RefusedError(KubeError, PermanentError):
    """The API server refused the request (400, 401, 403, 405, 422); ``status`` is its code.

    A 403 from a server that has not loaded its roles yet is a KubeUnavailableError.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as the API serves it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    served_as: str = ""
    """The plural in request paths, if ``plural`` is qualified because two API groups have the same
    plural."""

    @property
    def api_version(self) -> str:
        """``group/version``, or ``v1`` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The request path. No namespace means all namespaces."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}{scope}/{self.served_as or self.plural}{tail}"


PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
EVENTS = Resource("", "v1", "events", "Event")
CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
TAINT_RULES = Resource(
    "resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", namespaced=False
)
"""Served from 1.37 on; 1.36 serves v1beta2, if that is enabled."""
TAINT_RULES_BETA = replace(TAINT_RULES, version="v1beta2")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
POOLS = Resource(API_GROUP, "v1", "gpupools", "GPUPool", namespaced=False)
POLICIES = Resource(API_GROUP, "v1", "schedulingconfigtemplates", "SchedulingConfigTemplate", False)
BIND_REQUESTS = Resource(API_GROUP, "v1", "bindrequests", "BindRequest")
POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
"""Volcano's."""
QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
NATIVE_POD_GROUPS = Resource(
    "scheduling.k8s.io",
    "v1beta1",
    "podgroups.scheduling.k8s.io",
    "PodGroup",
    served_as="podgroups",
)
"""Kubernetes' own: served from 1.37 on, if that is enabled."""
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
JOBS = Resource("batch", "v1", "jobs", "Job")
JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
TOKEN_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
ADMISSION_POLICIES = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
ADMISSION_POLICY_BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)

PatchType = Literal["merge", "json", "strategic", "apply"]


@dataclass(frozen=True, slots=True)
class Listed:
    """All objects: the first event of a watch, and the first after each relist."""

    objects: tuple[Any, ...]
    """Each is an ``Object``, or the value that the list's ``transform`` made from it."""
    resource_version: int
    is_whole: bool = True
    """False: objects with unreadable metadata were left out."""
    is_older: bool = False
    """Whether the server's revision is lower than an earlier one: its store was restored from a
    backup."""


@dataclass(frozen=True, slots=True)
class Changed:
    """An object was added or modified."""

    object: Object


@dataclass(frozen=True, slots=True)
class Deleted:
    """An object was deleted; its last state."""

    object: Object


WatchEvent = Listed | Changed | Deleted


class ObjectVersion(msgspec.Struct, frozen=True, gc=False):
    """A version of an object. An empty namespace: it has none."""

    name: str
    uid: str
    revision: int
    """Its resourceVersion."""
    namespace: str = ""

    @classmethod
    def of(cls, obj: Object) -> Self:
        """The version of an object with readable metadata."""
        metadata = obj["metadata"]
        revision = int(metadata["resourceVersion"])
        return cls(metadata["name"], metadata["uid"], revision, metadata.get("namespace") or "")


@dataclass(frozen=True, slots=True)
class Transform:
    """Makes the entry of ``Listed`` from each object of a list, as soon as its text is read. So the
    list needs no memory for the objects, and no time for objects that the caller already has."""

    known: Callable[[ObjectVersion], Any]
    """The entry for an object that the caller has in this version; else None."""
    convert: Callable[[Object], Any]
    """The entry for any other object. Raises nothing."""
    read: Callable[[bytes], Any] = lambda _: None
    """The same, from an object's text in which nothing is nested too deep. None: decode the object
    and convert it."""
    knows_any: Callable[[], bool] = lambda: True
    """Whether the caller has any object of the list's kind."""

    def __call__(self, obj: Object) -> Any:
        """The entry for an object."""
        known = self.known(ObjectVersion.of(obj)) if self.knows_any() else None
        return self.convert(obj) if known is None else known


class Kube(Protocol):
    """The Kubernetes API. Every method raises KubeUnavailableError, and RefusedError."""

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        """One object. Raises NotFoundError."""

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform | None = None,
    ) -> Listed:
        """All objects, from the server's newest state."""

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        transform: Transform | None = None,
    ) -> AsyncIterator[WatchEvent]:
        """List, then every change without loss or duplicates. Resumes after early ends, relists on
        410. Never ends by itself; retries with jittered backoff while the server is away.
        ``transform`` is called only for listed objects."""

    async def create(
        self, resource: Resource, obj: Object, namespace: str = "", *, dry_run: bool = False
    ) -> Object:
        """Create an object; return it as stored. Raises AlreadyExistsError."""

    async def update(self, resource: Resource, obj: Object, *, subresource: str = "") -> Object:
        """Replace; fenced by the object's resourceVersion. Raises ConflictError, NotFoundError."""

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        namespace: str = "",
        *,
        kind: PatchType = "merge",
        subresource: str = "",
        timeout_s: float | None = None,
    ) -> Object:
        """Patch; fenced if the patch contains ``metadata.resourceVersion`` (or a JSON patch
        ``test``). The server aborts the request ``timeout_s`` after it received it. Raises
        ConflictError, NotFoundError."""

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: int | None = None,
        grace_period_s: int | None = None,
    ) -> None:
        """Delete. An absent object is no error. Raises ConflictError if a precondition fails."""

    async def bind(
        self,
        pod: str,
        namespace: str,
        *,
        uid: str,
        node: str,
        annotations: Mapping[str, str] = NO_ANNOTATIONS,
        resource_version: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """POST pods/binding; fenced by the pod's revision if one is given. The pod gets the
        ``annotations`` with its node. The server aborts the request ``timeout_s`` after it received
        it. Raises ConflictError if the pod has changed or is already bound, NotFoundError."""

    async def evict(self, pod: str, namespace: str, *, uid: str) -> None:
        """POST pods/eviction. Raises ConflictError while a budget forbids it, or if the pod with
        that name has another UID; NotFoundError."""

    async def version(self) -> str:
        """``gitVersion`` of the server."""

    async def served_versions(self, group: str) -> tuple[str, ...]:
        """The served versions of an API group, the preferred one first; none if the group is
        unknown."""

    async def close(self) -> None:
        """Close connections."""
