"""The served resources and their registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from .fields import core, devices, pods
from .status import Object
from .types import Type


@dataclass(frozen=True)
class ApiResource:
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
    """May a PUT omit metadata.resourceVersion?"""
    tracks_generation: bool = False
    field_selectors: tuple[str, ...] = ()
    """Selectable fields beyond metadata.name and metadata.namespace."""
    strategic: bool = True
    has_objects: bool = True
    """False: discovery lists the kind, and every create is refused."""
    stored_as: str = ""
    """Another resource's store key, if two APIs show one object."""
    storage_version: str = ""
    """The version in which objects are stored, if it differs from this one."""
    equivalents: tuple[str, ...] = ()
    """Other served versions of the same objects."""
    deprecation: str = ""
    """A warning in every answer about this version."""
    served_since: int = 0
    """The version at which a custom resource was defined: a watch can't begin before it."""
    crd: Object | None = field(default=None, compare=False)
    """The CustomResourceDefinition this resource comes from."""
    schema: Object | None = field(default=None, compare=False)
    """openAPIV3Schema of the served version of a custom resource."""

    @property
    def api_version(self) -> str:
        """`v1`, `resource.k8s.io/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def kept_as(self) -> str:
        """`api_version` of the stored object."""
        return f"{self.group}/{self.storage_version}" if self.storage_version else self.api_version

    @property
    def other_versions(self) -> tuple[str, ...]:
        """Other `api_version`s of the kind, served or not."""
        if self.group != "resource.k8s.io" or self.kind == "DeviceTaintRule":
            return ()
        known = (f"{self.group}/{version}" for version in ("v1", "v1beta1", "v1beta2"))
        return tuple(name for name in known if name != self.api_version)

    def in_version(self, version: str) -> ApiResource:
        """The same resource in another of its versions."""
        return self if version == self.version else replace(self, version=version)

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
        if not self.has_objects:
            return ("create", "get")
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
    ApiResource("", "v1", "namespaces", "Namespace", False, ("ns",), (), ("status",),
             field_selectors=("status.phase",)),
    ApiResource("", "v1", "nodes", "Node", False, ("no",), (), ("status",), table=core.NODE,
             field_selectors=("spec.unschedulable",)),
    ApiResource("", "v1", "pods", "Pod", True, ("po",), ("all",),
             ("status", "binding", "eviction"), table=pods.POD, tracks_generation=True,
             field_selectors=("spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
                              "spec.serviceAccountName", "status.phase", "status.podIP",
                              "status.nominatedNodeName", "spec.hostNetwork")),
    ApiResource("", "v1", "events", "Event", True, ("ev",),
             field_selectors=("involvedObject.kind", "involvedObject.namespace",
                              "involvedObject.name", "involvedObject.uid",
                              "involvedObject.apiVersion", "involvedObject.resourceVersion",
                              "involvedObject.fieldPath", "reason", "reportingComponent",
                              "source", "type")),
    ApiResource("", "v1", "secrets", "Secret", True, field_selectors=("type",)),
    ApiResource("", "v1", "configmaps", "ConfigMap", True, ("cm",)),
    ApiResource("", "v1", "serviceaccounts", "ServiceAccount", True, ("sa",), (), ("token",)),
    ApiResource("", "v1", "services", "Service", True, ("svc",), ("all",), ("status",)),
)  # fmt: skip
_GROUPS = (
    ApiResource("events.k8s.io", "v1", "events", "Event", True, ("ev",), stored_as="/events",
             field_selectors=("reason", "type", "regarding.kind", "regarding.name",
                              "regarding.namespace", "regarding.uid")),
    ApiResource("coordination.k8s.io", "v1", "leases", "Lease", True, table=core.LEASE,
             unconditional_update=False),
    ApiResource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, ("pc",)),
    ApiResource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, ("pdb",), (),
             ("status",), tracks_generation=True),
    ApiResource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False,
             table=devices.DEVICE_CLASS, tracks_generation=True),
    ApiResource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, (), (),
             ("status",), table=devices.CLAIM),
    ApiResource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True,
             table=devices.TEMPLATE),
    ApiResource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False,
             table=devices.SLICE, tracks_generation=True,
             field_selectors=("spec.nodeName", "spec.driver")),
    ApiResource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations",
             "MutatingWebhookConfiguration", False, (), ("api-extensions",),
             unconditional_update=False, tracks_generation=True),
    ApiResource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations",
             "ValidatingWebhookConfiguration", False, (), ("api-extensions",),
             unconditional_update=False, tracks_generation=True),
    ApiResource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies",
             "ValidatingAdmissionPolicy", False, (), ("api-extensions",), ("status",),
             unconditional_update=False, tracks_generation=True),
    ApiResource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings",
             "ValidatingAdmissionPolicyBinding", False, (), ("api-extensions",),
             unconditional_update=False, tracks_generation=True),
    ApiResource("apiextensions.k8s.io", "v1", "customresourcedefinitions",
             "CustomResourceDefinition", False, ("crd", "crds"), ("api-extensions",),
             ("status",), unconditional_update=False, tracks_generation=True),
)  # fmt: skip


_WORKLOADS = tuple(
    ApiResource(group, "v1", f"{kind.lower()}s", kind, True, short_names, has_objects=False)
    for group, kind, short_names in (
        ("apps", "DaemonSet", ("ds",)),
        ("apps", "Deployment", ("deploy",)),
        ("apps", "ReplicaSet", ("rs",)),
        ("apps", "StatefulSet", ("sts",)),
        ("batch", "CronJob", ("cj",)),
        ("batch", "Job", ()),
    )
)
"""Kinds that only a real control plane runs. They have no category, so `kubectl get all` omits
them."""
NO_WORKLOADS: Final = (
    "the sandbox runs no workloads, only pods: start a stack that runs them with "
    "`dray up --control-plane real`"
)
OF_CONTAINERS: Final = ("attach", "exec", "log", "portforward")
"""Subresources of pods that only a kubelet with containers serves."""
NO_CONTAINERS: Final = (
    "the sandbox runs no containers, so there are no logs, commands or ports of them: start a "
    "stack that runs them with `dray up --kubelet real`"
)


_TAINT_RULES = ApiResource(
    "resource.k8s.io", "v1beta2", "devicetaintrules", "DeviceTaintRule", False, (), (),
    ("status",), table=devices.TAINT_RULE, tracks_generation=True,
)  # fmt: skip
_OFF_BY_DEFAULT: Final = ("resource.k8s.io/v1beta2",)
"""Versions that a server serves only if an option enables them."""


def _v1beta2(resource: ApiResource) -> ApiResource:
    """A DRA resource in its last beta version, which has the same fields."""
    return replace(
        resource,
        version="v1beta2",
        storage_version="v1",
        equivalents=("v1",),
        deprecation=(
            f"resource.k8s.io/v1beta2 {resource.kind} is deprecated in v1.36+, "
            "unavailable in v1.39+"
        ),
    )


class Registry:
    """The resources served now: the built-in ones and those of established CRDs."""

    def __init__(self, serve: tuple[str, ...] = ()) -> None:
        """``serve`` are versions of OFF_BY_DEFAULT; ValueError for any other."""
        self._resources: dict[tuple[str, str, str], ApiResource] = {}
        for resource in _CORE + _GROUPS + _WORKLOADS:
            self.add(resource)
        if unknown := [name for name in serve if name not in _OFF_BY_DEFAULT]:
            known = ", ".join(_OFF_BY_DEFAULT)
            raise ValueError(f"{unknown[0]} can't be served; only {known} is off by default")
        for resource in _GROUPS if serve else ():
            if resource.group == _TAINT_RULES.group:
                self.add(replace(resource, equivalents=("v1beta2",)))
                self.add(_v1beta2(resource))
        if serve:
            self.add(_TAINT_RULES)

    def add(self, resource: ApiResource) -> None:
        """Serve a resource (again)."""
        self._resources[resource.group, resource.version, resource.plural] = resource

    def remove_crd(self, group: str, plural: str) -> None:
        """Stop serving every version of a custom resource."""
        for key in [k for k in self._resources if k[0] == group and k[2] == plural]:
            del self._resources[key]

    def find(self, group: str, version: str, plural: str) -> ApiResource | None:
        """The resource at a path, if it is served."""
        return self._resources.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> ApiResource | None:
        """The resource of a kind, as ownerReferences name it; only kinds that may have objects."""
        for resource in self._resources.values():
            named = resource.kind == kind and resource.api_version == api_version
            if named and resource.has_objects:
                return resource
        return None

    def of_group(self, group: str, version: str) -> list[ApiResource]:
        """Resources of one group version, sorted by name."""
        found = [r for r in self._resources.values() if (r.group, r.version) == (group, version)]
        return sorted(found, key=lambda resource: resource.plural)

    def groups(self) -> dict[str, list[str]]:
        """Named groups (without the core group) and their versions."""
        result: dict[str, list[str]] = {}
        for group, version, _ in self._resources:
            if group and version not in result.setdefault(group, []):
                result[group].append(version)
        return result

    def __iter__(self) -> Iterator[ApiResource]:
        return iter(list(self._resources.values()))
