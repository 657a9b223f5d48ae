"""The remaining built-in kinds, and which rules belong to which resource."""

import base64
import binascii
from collections.abc import Sequence

from .budgets import BudgetRules
from .names import qualified_name
from .resources import ApiResource
from .rules import ResourceRules, WithStatus, take_metadata
from .rules_claims import ClaimRules, ClassRules, TemplateRules
from .rules_pods import PodRules
from .rules_policies import PolicyBindingRules, PolicyRules
from .rules_slices import SliceRules
from .rules_taints import TaintRuleRules
from .rules_webhooks import WebhookRules
from .status import FieldError, Object, bad_request, duplicate, invalid, not_supported, required

_NODE_INFO = (
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
)
_NOT_READY = "node.kubernetes.io/not-ready"


class NamespaceRules(WithStatus):
    """Namespace: labelled with its own name, Active until it is deleted."""

    def default(self, obj: Object) -> None:
        meta = obj["metadata"]
        if meta.get("name"):
            meta.setdefault("labels", {})["kubernetes.io/metadata.name"] = meta["name"]
        obj.setdefault("spec", {})
        obj.setdefault("status", {})

    def prepare_create(self, obj: Object) -> None:
        name = obj["metadata"]["name"]
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}

    def prepare_update(self, new: Object, old: Object) -> None:
        super().prepare_update(new, old)
        new["spec"] = old.get("spec") or {}


class NodeRules(WithStatus):
    """Node. Its status may be given at creation, as kubelets do."""

    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {})
        status = obj.setdefault("status", {})
        if "allocatable" not in status and "capacity" in status:
            status["allocatable"] = dict(status["capacity"])
        info = status.setdefault("nodeInfo", {})
        for name in _NODE_INFO:
            info.setdefault(name, "")
        status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
        for condition in status.get("conditions") or []:
            condition.setdefault("lastHeartbeatTime", None)
            condition.setdefault("lastTransitionTime", None)

    def prepare_create(self, obj: Object) -> None:
        """A new node is not ready (TaintNodesByCondition); its creator sets its status."""
        taints = obj["spec"].setdefault("taints", [])
        if _NOT_READY not in [taint.get("key") for taint in taints]:
            taints.append({"key": _NOT_READY, "effect": "NoSchedule"})

    def prepare_status(self, new: Object, old: Object) -> None:
        sent = new["metadata"]
        super().prepare_status(new, old)
        take_metadata(new, sent, ("labels", "annotations"))

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        found: list[FieldError] = []
        seen: list[tuple[str, str]] = []
        effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        for index, taint in enumerate(obj["spec"].get("taints") or []):
            field = f"metadata.taints[{index}]"  # sic
            key, effect = taint.get("key", ""), taint.get("effect", "")
            found += [invalid(f"{field}.key", key, text) for text in qualified_name(key)]
            if not effect:
                found.append(required(f"{field}.effect"))
            elif effect not in effects:
                found.append(not_supported(f"{field}.effect", effect, effects))
            if (key, effect) in seen:
                found.append(duplicate(field, taint))
            seen.append((key, effect))
        return found


class EventRules(ResourceRules):
    """core/v1 Event, in the namespace of its object."""

    def default(self, obj: Object) -> None:
        for field in ("metadata", "involvedObject", "source"):
            obj.setdefault(field, {})
        for field in ("firstTimestamp", "lastTimestamp", "eventTime"):
            obj.setdefault(field, None)
        obj.setdefault("reportingComponent", "")
        obj.setdefault("reportingInstance", "")

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        about = obj["involvedObject"].get("namespace", "")
        namespace = obj["metadata"].get("namespace", "")
        if (about or "default") != namespace:
            text = "does not match event.namespace"
            return [invalid("involvedObject.namespace", about, text)]
        return []


class LeaseRules(ResourceRules):
    """Lease."""

    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {})

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        spec = obj["spec"]
        found: list[FieldError] = []
        if spec.get("leaseDurationSeconds", 1) <= 0:
            field, text = "spec.leaseDurationSeconds", "must be greater than 0"
            found.append(invalid(field, spec["leaseDurationSeconds"], text))
        if spec.get("leaseTransitions", 0) < 0:
            field, text = "spec.leaseTransitions", "must be greater than or equal to 0"
            found.append(invalid(field, spec["leaseTransitions"], text))
        return found


class SecretRules(ResourceRules):
    """Secret: stringData is written into data."""

    def default(self, obj: Object) -> None:
        obj.setdefault("type", "Opaque")
        for key, value in (obj.pop("stringData", None) or {}).items():
            obj.setdefault("data", {})[key] = base64.b64encode(str(value).encode()).decode()
        for value in (obj.get("data") or {}).values():
            try:
                base64.b64decode(value, validate=True)
            except (binascii.Error, TypeError) as error:
                raise bad_request(
                    'Secret in version "v1" cannot be handled as a Secret: illegal base64 data '
                    "at input byte 0"
                ) from error


class ServiceRules(WithStatus):
    """Service: no address is allocated, everything else is stored."""

    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {}).setdefault("type", "ClusterIP")
        obj["spec"].setdefault("sessionAffinity", "None")
        obj.setdefault("status", {"loadBalancer": {}})


_BY_RESOURCE: dict[str, type[ResourceRules]] = {
    "/namespaces": NamespaceRules,
    "/nodes": NodeRules,
    "/pods": PodRules,
    "/events": EventRules,
    "/secrets": SecretRules,
    "coordination.k8s.io/leases": LeaseRules,
    "policy/poddisruptionbudgets": BudgetRules,
    "/services": ServiceRules,
    "resource.k8s.io/resourceclaims": ClaimRules,
    "resource.k8s.io/resourceclaimtemplates": TemplateRules,
    "resource.k8s.io/resourceslices": SliceRules,
    "resource.k8s.io/deviceclasses": ClassRules,
    "resource.k8s.io/devicetaintrules": TaintRuleRules,
    "admissionregistration.k8s.io/mutatingwebhookconfigurations": WebhookRules,
    "admissionregistration.k8s.io/validatingwebhookconfigurations": WebhookRules,
    "admissionregistration.k8s.io/validatingadmissionpolicies": PolicyRules,
    "admissionregistration.k8s.io/validatingadmissionpolicybindings": PolicyBindingRules,
}


def built_in_rules(resource: ApiResource) -> ResourceRules:
    """The rules of a built-in resource."""
    return _BY_RESOURCE.get(resource.store_key, ResourceRules)(resource)
