"""Pods: defaults that schedulers and kubectl rely on, and mutable fields."""

from collections.abc import Sequence

from . import metadata, podspec
from .names import label_errors
from .rules import WithStatus, take_metadata
from .status import (
    FieldError,
    Object,
    forbidden_field,
    go_value,
    invalid,
    not_supported,
)
from .store import copy

_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"


class PodRules(WithStatus):
    """Pod."""

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        for key, value in (
            ("restartPolicy", "Always"),
            ("dnsPolicy", "ClusterFirst"),
            ("schedulerName", "default-scheduler"),
            ("terminationGracePeriodSeconds", 30),
            ("enableServiceLinks", True),
        ):
            spec.setdefault(key, value)
        spec.setdefault("securityContext", {})
        if spec.get("serviceAccountName"):
            spec.setdefault("serviceAccount", spec["serviceAccountName"])
        for container in _containers(spec):
            _default_container(container)
            for port in (container.get("ports") or []) if spec.get("hostNetwork") else []:
                port.setdefault("hostPort", port.get("containerPort"))
        for volume in spec.get("volumes") or []:
            for kind in ("configMap", "secret", "projected", "downwardAPI"):
                if kind in volume:
                    volume[kind].setdefault("defaultMode", 0o644)
        _default_tolerations(spec)
        for field in ("schedulingGates", "resourceClaims", "nodeSelector"):
            if field in spec and not spec[field]:
                del spec[field]
        obj.setdefault("status", {})

    def prepare_create(self, obj: Object) -> None:
        obj["metadata"]["generation"] = 1
        obj["status"] = {"phase": "Pending", "qosClass": _qos_class(obj["spec"])}
        if obj["spec"].get("schedulingGates"):
            obj["status"]["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": metadata.now(),
                    "reason": "SchedulingGated",
                    "message": _GATED_MESSAGE,
                }
            ]

    def prepare_status(self, new: Object, old: Object) -> None:
        sent = new["metadata"]
        super().prepare_status(new, old)
        # Unlike other kinds, a pod's status update may change labels, annotations and finalizers.
        take_metadata(new, sent, ("labels", "annotations", "finalizers"))
        status = new["status"]
        status.setdefault("qosClass", (old.get("status") or {}).get("qosClass", "BestEffort"))

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        spec = obj["spec"]
        found = podspec.claim_errors(spec.get("resourceClaims") or [])
        found += podspec.container_errors(spec, "containers", required_list=True)
        found += podspec.container_errors(spec, "initContainers", required_list=False)
        policies = ("Always", "OnFailure", "Never")
        if spec["restartPolicy"] not in policies:
            found.append(not_supported("spec.restartPolicy", spec["restartPolicy"], policies))
        found += label_errors(spec.get("nodeSelector") or {}, "spec.nodeSelector")
        found += podspec.toleration_errors(spec.get("tolerations") or [])
        gates = spec.get("schedulingGates") or []
        if gates and spec.get("nodeName"):
            text = "cannot be set until all schedulingGates have been cleared"
            found.append(forbidden_field("spec.nodeName", text))
        return found + podspec.gate_errors(gates)

    def validate_update(self, new: Object, old: Object) -> Sequence[FieldError]:
        found = _changed_gates(new["spec"], old["spec"])
        found += _changed_tolerations(new["spec"], old["spec"])
        found += _changed_lists(new["spec"], old["spec"])
        if found:
            return found
        if _fixed_part(new["spec"], old["spec"]) != old["spec"]:
            text = f"pod updates may not change fields other than {_UPDATABLE}"
            changed = _difference(new["spec"], old["spec"])
            return [forbidden_field("spec", f"{text}\n{changed}")]
        return list(self.validate_create(new))

    def validate_status(self, new: Object, old: Object) -> Sequence[FieldError]:
        names = [claim.get("name") for claim in new["spec"].get("resourceClaims") or []]
        found: list[FieldError] = []
        for index, status in enumerate(new["status"].get("resourceClaimStatuses") or []):
            if status.get("name") not in names:
                field = f"status.resourceClaimStatuses[{index}].name"
                text = "must match the name of an entry in `spec.resourceClaims`"
                found.append(invalid(field, status.get("name", ""), text))
        before = (old.get("status") or {}).get("qosClass")
        if before and new["status"].get("qosClass") != before:
            field = "status.qosClass"
            found.append(invalid(field, new["status"].get("qosClass"), "field is immutable"))
        return found


def scheduled(pod: Object, node: str) -> Object:
    """The pod bound to a node, with its PodScheduled condition."""
    result: Object = copy(pod)
    result["spec"]["nodeName"] = node
    status = result.setdefault("status", {})
    status.pop("nominatedNodeName", None)
    others = [c for c in status.get("conditions") or [] if c.get("type") != "PodScheduled"]
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": metadata.now(),
    }
    status["conditions"] = [*others, condition]
    return result


def _containers(spec: Object) -> list[Object]:
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


def _default_tolerations(spec: Object) -> None:
    """Tolerate an unreachable node for five minutes (DefaultTolerationSeconds)."""
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_covers(toleration, key) for toleration in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            )


def _covers(toleration: Object, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in (
        "",
        "NoExecute",
    )


def _default_container(container: Object) -> None:
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2].partition(":")[2]
    always = not tag or tag == "latest"
    container.setdefault(
        "imagePullPolicy", "Always" if always and "@" not in image else "IfNotPresent"
    )
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    for name, amount in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, amount)
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or []:
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")


def _qos_class(spec: Object) -> str:
    requests: list[Object] = []
    limits: list[Object] = []
    for container in _containers(spec):
        resources = container.get("resources") or {}
        requests.append({k: v for k, v in (resources.get("requests") or {}).items() if k in _QOS})
        limits.append({k: v for k, v in (resources.get("limits") or {}).items() if k in _QOS})
    if not any(requests) and not any(limits):
        return "BestEffort"
    if all(set(limit) == _QOS for limit in limits) and requests == limits:
        return "Guaranteed"
    return "Burstable"


_QOS = {"cpu", "memory"}


def _changed_gates(new: Object, old: Object) -> list[FieldError]:
    before = [gate["name"] for gate in old.get("schedulingGates") or []]
    return [
        forbidden_field(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'",
        )
        for index, gate in enumerate(new.get("schedulingGates") or [])
        if gate.get("name") not in before
    ]


def _changed_lists(new: Object, old: Object) -> list[FieldError]:
    for field, name in (("containers", "containers"), ("initContainers", "init containers")):
        if len(new.get(field) or []) != len(old.get(field) or []):
            text = f"pod updates may not add or remove {name}"
            return [forbidden_field(f"spec.{field}", text)]
    selector, before = new.get("nodeSelector") or {}, old.get("nodeSelector") or {}
    if old.get("schedulingGates") and any(selector.get(k) != v for k, v in before.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        return [invalid("spec.nodeSelector", selector, text)]
    return []


def _changed_tolerations(new: Object, old: Object) -> list[FieldError]:
    def without_seconds(toleration: Object) -> Object:
        return {k: v for k, v in toleration.items() if k != "tolerationSeconds"}

    now = [without_seconds(toleration) for toleration in new.get("tolerations") or []]
    if all(without_seconds(toleration) in now for toleration in old.get("tolerations") or []):
        return []
    text = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden_field("spec.tolerations", text)]


def _fixed_part(new: Object, old: Object) -> Object:
    """The new spec with everything that may change set back to the old."""
    spec: Object = copy(new)
    fields = ["tolerations", "schedulingGates", "activeDeadlineSeconds"]
    if old.get("schedulingGates"):
        fields += _narrowed(new, old)
    for field in fields:
        spec.pop(field, None)
        if field in old:
            spec[field] = old[field]
    for field in ("containers", "initContainers"):
        before = old.get(field) or []
        for index, container in enumerate(spec.get(field) or []):
            if index < len(before):
                container["image"] = before[index].get("image")
    return spec


def _narrowed(new: Object, old: Object) -> list[str]:
    """A gated pod may get a narrower node selector and its first node affinity."""
    fields = []
    selector = new.get("nodeSelector") or {}
    if all(selector.get(k) == v for k, v in (old.get("nodeSelector") or {}).items()):
        fields.append("nodeSelector")
    if not (old.get("affinity") or {}).get("nodeAffinity"):
        fields.append("affinity")
    return fields


def _difference(new: Object, old: Object) -> str:
    changed = sorted(k for k in {*new, *old} if new.get(k) != old.get(k))
    lines = [f"- {k}: {go_value(old.get(k))}\n+ {k}: {go_value(new.get(k))}" for k in changed]
    return "\n".join(lines)
