"""Pods: every field of a pod's spec and containers by name; those that dray reads, in full."""

from dray_sandbox.apiserver.fields.parts import TOLERATIONS, top
from dray_sandbox.apiserver.types import (
    ANY,
    BOOLEAN,
    INTEGER,
    QUANTITY,
    STRING,
    ListOf,
    MapOf,
    Obj,
    Type,
)


def _each(names: tuple[str, ...], kind: Type) -> dict[str, Type]:
    return dict.fromkeys(names, kind)


_PART = Obj({}, open=True)
_FIELD_REF = Obj({"apiVersion": STRING, "fieldPath": STRING})
_SOURCES = _each(("resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"), _PART)
_ENV = Obj(
    {
        "name": STRING,
        "value": STRING,
        "valueFrom": Obj(_SOURCES | {"fieldRef": _FIELD_REF}),
    }
)
_RESOURCES = Obj(
    {
        "limits": MapOf(QUANTITY),
        "requests": MapOf(QUANTITY),
        "claims": ListOf(Obj({"name": STRING, "request": STRING})),
    }
)
_PORT = Obj(
    {
        "name": STRING,
        "hostPort": INTEGER,
        "containerPort": INTEGER,
        "protocol": STRING,
        "hostIP": STRING,
    }
)
_LISTS_OF_CONTAINERS = (
    "envFrom",
    "resizePolicy",
    "restartPolicyRules",
    "volumeMounts",
    "volumeDevices",
)
_PARTS_OF_CONTAINERS = (
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "securityContext",
)
_NAMED_OF_CONTAINERS: dict[str, Type] = {
    "name": STRING,
    "image": STRING,
    "command": ListOf(STRING),
    "args": ListOf(STRING),
    "workingDir": STRING,
    "ports": ListOf(_PORT),
    "env": ListOf(_ENV),
    "resources": _RESOURCES,
    "restartPolicy": STRING,
    "terminationMessagePath": STRING,
    "terminationMessagePolicy": STRING,
    "imagePullPolicy": STRING,
    "stdin": BOOLEAN,
    "stdinOnce": BOOLEAN,
    "tty": BOOLEAN,
}
_CONTAINER = Obj(
    _NAMED_OF_CONTAINERS
    | _each(_LISTS_OF_CONTAINERS, ListOf(ANY))
    | _each(_PARTS_OF_CONTAINERS, _PART)
)
_CLAIM = Obj({"name": STRING, "resourceClaimName": STRING, "resourceClaimTemplateName": STRING})
_STRINGS = (
    "restartPolicy",
    "dnsPolicy",
    "serviceAccountName",
    "serviceAccount",
    "nodeName",
    "hostname",
    "subdomain",
    "schedulerName",
    "priorityClassName",
    "runtimeClassName",
    "preemptionPolicy",
    "hostnameOverride",
)
_NUMBERS = ("terminationGracePeriodSeconds", "activeDeadlineSeconds", "priority")
_FLAGS = (
    "automountServiceAccountToken",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "shareProcessNamespace",
    "enableServiceLinks",
    "setHostnameAsFQDN",
    "hostUsers",
)
_LISTS = (
    "ephemeralContainers",
    "hostAliases",
    "imagePullSecrets",
    "readinessGates",
    "topologySpreadConstraints",
)
_PARTS = ("securityContext", "affinity", "dnsConfig", "os")
_NAMED: dict[str, Type] = {
    "volumes": ListOf(Obj({"name": STRING}, open=True)),
    "containers": ListOf(_CONTAINER),
    "initContainers": ListOf(_CONTAINER),
    "resources": _RESOURCES,
    "overhead": MapOf(QUANTITY),
    "nodeSelector": MapOf(STRING),
    "schedulingGates": ListOf(Obj({"name": STRING})),
    "resourceClaims": ListOf(_CLAIM),
    "tolerations": TOLERATIONS,
}
_POD_SPEC = Obj(
    _NAMED
    | _each(_STRINGS, STRING)
    | _each(_NUMBERS, INTEGER)
    | _each(_FLAGS, BOOLEAN)
    | _each(_LISTS, ListOf(ANY))
    | _each(_PARTS, _PART),
    # The group of a workload is alpha in 1.36: it is dropped.
    dropped=frozenset({"schedulingGroup"}),
)
POD = top(_POD_SPEC, _PART)
