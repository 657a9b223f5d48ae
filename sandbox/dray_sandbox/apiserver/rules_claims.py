"""ResourceClaims, ResourceClaimTemplates and DeviceClasses: immutability and allocation rules.

Source of the rules: `pkg/apis/resource/validation/validation.go` of Kubernetes 1.36.
"""

from collections.abc import Sequence

from . import claimspec, claimstatus, metadata
from .deviceparts import opaque_errors
from .fieldlists import list_errors
from .names import annotation_errors, label_errors, qualified_name
from .rules import ResourceRules, WithStatus, immutable
from .status import FieldError, Object, forbidden_field, invalid

_QUOTA = "requests."
_OF_TEMPLATES = ("annotations", "labels")
"""The fields that the metadata in a template may have."""


class ClaimRules(WithStatus):
    """ResourceClaim."""

    def default(self, obj: Object) -> None:
        claimspec.default_spec(obj.setdefault("spec", {}))
        allocation = obj.setdefault("status", {}).get("allocation")
        if allocation is not None:
            allocation.setdefault("devices", {})

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {}

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        found = claimspec.admin_errors(obj["spec"], "spec", self.namespace_labels)
        return found + claimspec.spec_errors(obj["spec"], "spec")

    def validate_update(self, new: Object, old: Object) -> Sequence[FieldError]:
        return immutable("spec", new["spec"], old["spec"])

    def prepare_status(self, new: Object, old: Object) -> None:
        super().prepare_status(new, old)
        claimstatus.drop_deallocated(new["status"], old.get("status") or {})

    def validate_status(self, new: Object, old: Object) -> Sequence[FieldError]:
        names = claimspec.request_names(new["spec"])
        deleting = "deletionTimestamp" in old["metadata"]
        before = old.get("status") or {}
        return claimstatus.status_errors(new["status"], before, names, deleting=deleting)


class TemplateRules(ResourceRules):
    """ResourceClaimTemplate."""

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        metadata.tidy(spec.setdefault("metadata", {}))
        claimspec.default_spec(spec.setdefault("spec", {}))

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        field, meta = "spec.metadata", obj["spec"]["metadata"]
        found = annotation_errors(meta.get("annotations") or {}, f"{field}.annotations")
        found += label_errors(meta.get("labels") or {}, f"{field}.labels")
        others = [key for key, value in meta.items() if value and key not in _OF_TEMPLATES]
        found += [forbidden_field(f"{field}.{key}", "cannot be set") for key in others]
        spec = obj["spec"]["spec"]
        found += claimspec.admin_errors(spec, "spec.spec", self.namespace_labels)
        return found + claimspec.spec_errors(spec, "spec.spec")

    def validate_update(self, new: Object, old: Object) -> Sequence[FieldError]:
        return immutable("spec", new["spec"], old["spec"])


class ClassRules(ResourceRules):
    """DeviceClass."""

    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {})

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        spec = obj["spec"]
        found = claimspec.selectors_errors(spec.get("selectors") or [], "spec.selectors")
        name = spec.get("extendedResourceName")
        found += list_errors(
            spec.get("config") or [],
            claimspec.MAX_CONFIGS,
            "spec.config",
            lambda item, where: opaque_errors(item.get("opaque"), f"{where}.opaque"),
        )
        if name is not None and not _is_extended_resource(name):
            text = "must be a valid extended resource name"
            found.append(invalid("spec.extendedResourceName", name, text))
        return found


def _is_extended_resource(name: str) -> bool:
    native = "/" not in name or "kubernetes.io/" in name
    return not (native or name.startswith(_QUOTA) or qualified_name(_QUOTA + name))
