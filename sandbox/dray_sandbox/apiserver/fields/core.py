"""Pods, nodes, leases and what has no table of its own."""

from __future__ import annotations

from dray_sandbox.apiserver.fields.parts import METADATA, TOLERATIONS, top
from dray_sandbox.apiserver.typed import (
    ANY,
    BOOLEAN,
    INTEGER,
    MICROTIME,
    QUANTITY,
    STRING,
    ListOf,
    MapOf,
    Obj,
)

_RESOURCES = Obj({"limits": MapOf(QUANTITY), "requests": MapOf(QUANTITY)}, open=True)
_CONTAINERS = ListOf(Obj({"name": STRING, "image": STRING, "resources": _RESOURCES}, open=True))
POD_SPEC = Obj(
    {
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
        "resources": _RESOURCES,
        "overhead": MapOf(QUANTITY),
        "nodeName": STRING,
        "schedulerName": STRING,
        "nodeSelector": MapOf(STRING),
        "schedulingGates": ListOf(Obj({"name": STRING})),
        "resourceClaims": ListOf(
            Obj(
                {
                    "name": STRING,
                    "resourceClaimName": STRING,
                    "resourceClaimTemplateName": STRING,
                }
            )
        ),
        "tolerations": TOLERATIONS,
        "terminationGracePeriodSeconds": INTEGER,
        "priority": INTEGER,
        "priorityClassName": STRING,
        "restartPolicy": STRING,
    },
    open=True,
)
POD = Obj({"metadata": METADATA, "spec": POD_SPEC}, open=True)
NODE = Obj(
    {
        "metadata": METADATA,
        "spec": Obj({"unschedulable": BOOLEAN, "taints": ListOf(ANY)}, open=True),
        "status": Obj({"capacity": MapOf(QUANTITY), "allocatable": MapOf(QUANTITY)}, open=True),
    },
    open=True,
)
LEASE = top(
    Obj(
        {
            "holderIdentity": STRING,
            "leaseDurationSeconds": INTEGER,
            "acquireTime": MICROTIME,
            "renewTime": MICROTIME,
            "leaseTransitions": INTEGER,
            "strategy": STRING,
            "preferredHolder": STRING,
        }
    )
)
OPEN = Obj({"metadata": METADATA}, open=True)
