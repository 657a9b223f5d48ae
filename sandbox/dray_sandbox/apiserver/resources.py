"""What this server serves: one descriptor per resource, and the registry that finds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .fields import core, devices
from .status import Object
from .typed import Type


@dataclass(frozen=True)
class Resource:
    """One resource of one API version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    table: Type = core.OPEN
    """Fields of a built-in kind; unused for custom resources."""
    unconditional_update: bool = True
    """May a PUT leave metadata.resourceVersion out?"""
    tracks_generation: bool = False
    field_selectors: tuple[str, ...] = ()
    """Selectable fields beyond metadata.name and metadata.namespace."""
    strategic: bool = True
    stored_as: str = ""
    """Another resource's store key, when two APIs show one object."""
    crd: Object | None = field(default=None, compare=False)
    """The CustomResourceDefinition this resource comes from."""
    schema: Object | None = field(default=None, compare=False)
    """openAPIV3Schema of the served version of a custom resource."""

    @property
    def api_version(self) -> str:
        """`v1`, `resource.k8s.io/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        """The kind in lower case."""
        return self.kind.lower()

    @property
    def store_key(self) -> str:
        """The part of the store's key that names the resource."""
        return self.stored_as or f"{self.group}/{self.plural}"

    @property
    def verbs(self) -> tuple[str, ...]:
        """Verbs as discovery lists them."""
        return (
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        )


_CORE = (
    Resource("", "v1", "namespaces", "Namespace", False, ("ns",), (), ("status",),
             field_selectors=("status.phase",)),
    Resource("", "v1", "nodes", "Node", False, ("no",), (), ("status",), table=core.NODE,
             field_selectors=("spec.unschedulable",)),
    Resource("", "v1", "pods", "Pod", True, ("po",), ("all",),
             ("status", "binding", "eviction"), table=core.POD, tracks_generation=True,
             field_selectors=("spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
                              "spec.serviceAccountName", "status.phase", "status.podIP",
                              "status.nominatedNodeName", "spec.hostNetwork")),
    Resource("", "v1", "events", "Event", True, ("ev",),
             field_selectors=("involvedObject.kind", "involvedObject.namespace",
                              "involvedObject.name", "involvedObject.uid",
                              "involvedObject.apiVersion", "involvedObject.resourceVersion",
                              "involvedObject.fieldPath", "reason", "reportingComponent",
                              "source", "type")),
    Resource("", "v1", "secrets", "Secret", True, field_selectors=("type",)),
    Resource("", "v1", "configmaps", "ConfigMap", True, ("cm",)),
    Resource("", "v1", "serviceaccounts", "ServiceAccount", True, ("sa",)),
    Resource("", "v1", "services", "Service", True, ("svc",), ("all",), ("status",)),
)  # fmt: skip
_GROUPS = (
    Resource("events.k8s.io", "v1", "events", "Event", True, ("ev",), stored_as="/events",
             field_selectors=("reason", "type", "regarding.kind", "regarding.name",
                              "regarding.namespace", "regarding.uid")),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", True, table=core.LEASE,
             unconditional_update=False),
    Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, ("pc",)),
    Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False,
             table=devices.DEVICE_CLASS, tracks_generation=True),
    Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, (), (),
             ("status",), table=devices.CLAIM),
    Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True,
             table=devices.TEMPLATE),
    Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False,
             table=devices.SLICE, tracks_generation=True,
             field_selectors=("spec.nodeName", "spec.driver")),
    Resource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations",
             "MutatingWebhookConfiguration", False, (), ("api-extensions",),
             unconditional_update=False, tracks_generation=True),
    Resource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations",
             "ValidatingWebhookConfiguration", False, (), ("api-extensions",),
             unconditional_update=False, tracks_generation=True),
    Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions",
             "CustomResourceDefinition", False, ("crd", "crds"), ("api-extensions",),
             ("status",), unconditional_update=False, tracks_generation=True),
)  # fmt: skip


class Registry:
    """The resources served now: the built-in ones and those of established CRDs."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str, str], Resource] = {}
        for resource in _CORE + _GROUPS:
            self.add(resource)

    def add(self, resource: Resource) -> None:
        """Serve a resource (again)."""
        self._resources[resource.group, resource.version, resource.plural] = resource

    def remove_crd(self, group: str, plural: str) -> None:
        """Stop serving every version of a custom resource."""
        for key in [k for k in self._resources if k[0] == group and k[2] == plural]:
            del self._resources[key]

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource at a path, if it is served."""
        return self._resources.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> Resource | None:
        """The resource of a kind, as ownerReferences name it."""
        for resource in self._resources.values():
            if resource.kind == kind and resource.api_version == api_version:
                return resource
        return None

    def of_group(self, group: str, version: str) -> list[Resource]:
        """Resources of one group version, sorted by name."""
        found = [r for r in self._resources.values() if (r.group, r.version) == (group, version)]
        return sorted(found, key=lambda resource: resource.plural)

    def groups(self) -> dict[str, list[str]]:
        """Named groups and their versions; the core group is not among them."""
        result: dict[str, list[str]] = {}
        for group, version, _ in self._resources:
            if group and version not in result.setdefault(group, []):
                result[group].append(version)
        return result

    def __iter__(self) -> Iterator[Resource]:
        return iter(list(self._resources.values()))
