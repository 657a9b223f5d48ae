"""The fields of the built-in kinds that this server reads strictly.

`resource.k8s.io/v1` is complete (its fields are what dray lives on). Core kinds are open: known
quantities are made canonical, everything else is kept as it was sent.
"""

from __future__ import annotations

from .typed import (
    ANY,
    BOOLEAN,
    INTEGER,
    MICROTIME,
    QUANTITY,
    STRING,
    TIME,
    ListOf,
    MapOf,
    Obj,
    Type,
)

OWNER = Obj(
    {
        "apiVersion": STRING,
        "kind": STRING,
        "name": STRING,
        "uid": STRING,
        "controller": BOOLEAN,
        "blockOwnerDeletion": BOOLEAN,
    }
)
METADATA = Obj(
    {
        "name": STRING,
        "generateName": STRING,
        "namespace": STRING,
        "selfLink": STRING,
        "uid": STRING,
        "resourceVersion": STRING,
        "generation": INTEGER,
        "creationTimestamp": TIME,
        "deletionTimestamp": TIME,
        "deletionGracePeriodSeconds": INTEGER,
        "labels": MapOf(STRING),
        "annotations": MapOf(STRING),
        "ownerReferences": ListOf(OWNER),
        "finalizers": ListOf(STRING),
        "managedFields": ListOf(ANY),
    }
)


def top(spec: Type | None = None, status: Type | None = None, **more: Type) -> Obj:
    """A top-level kind: type, metadata and what else it has."""
    fields: dict[str, Type] = {"apiVersion": STRING, "kind": STRING, "metadata": METADATA}
    if spec is not None:
        fields["spec"] = spec
    if status is not None:
        fields["status"] = status
    return Obj(fields | more)


NODE_SELECTOR_REQUIREMENT = Obj({"key": STRING, "operator": STRING, "values": ListOf(STRING)})
NODE_SELECTOR = Obj(
    {
        "nodeSelectorTerms": ListOf(
            Obj(
                {
                    "matchExpressions": ListOf(NODE_SELECTOR_REQUIREMENT),
                    "matchFields": ListOf(NODE_SELECTOR_REQUIREMENT),
                }
            )
        )
    }
)
CONDITION = Obj(
    {
        "type": STRING,
        "status": STRING,
        "observedGeneration": INTEGER,
        "lastTransitionTime": TIME,
        "reason": STRING,
        "message": STRING,
    }
)
SELECTORS = ListOf(Obj({"cel": Obj({"expression": STRING})}))
TOLERATIONS = ListOf(
    Obj(
        {
            "key": STRING,
            "operator": STRING,
            "value": STRING,
            "effect": STRING,
            "tolerationSeconds": INTEGER,
        }
    )
)
OPAQUE = Obj({"driver": STRING, "parameters": ANY})
_SUBREQUEST: dict[str, Type] = {
    "deviceClassName": STRING,
    "selectors": SELECTORS,
    "allocationMode": STRING,
    "count": INTEGER,
    "tolerations": TOLERATIONS,
    "capacity": Obj({"requests": MapOf(QUANTITY)}),
}
CLAIM_SPEC = Obj(
    {
        "devices": Obj(
            {
                "requests": ListOf(
                    Obj(
                        {
                            "name": STRING,
                            "exactly": Obj(_SUBREQUEST | {"adminAccess": BOOLEAN}),
                            "firstAvailable": ListOf(Obj(_SUBREQUEST | {"name": STRING})),
                        }
                    )
                ),
                "constraints": ListOf(
                    Obj(
                        {
                            "requests": ListOf(STRING),
                            "matchAttribute": STRING,
                            "distinctAttribute": STRING,
                        }
                    )
                ),
                "config": ListOf(Obj({"requests": ListOf(STRING), "opaque": OPAQUE})),
            }
        )
    }
)
RESULT = Obj(
    {
        "request": STRING,
        "driver": STRING,
        "pool": STRING,
        "device": STRING,
        "adminAccess": BOOLEAN,
        "tolerations": TOLERATIONS,
        "bindingConditions": ListOf(STRING),
        "bindingFailureConditions": ListOf(STRING),
        "shareID": STRING,
        "consumedCapacity": MapOf(QUANTITY),
    }
)
CLAIM_STATUS = Obj(
    {
        "allocation": Obj(
            {
                "devices": Obj(
                    {
                        "results": ListOf(RESULT),
                        "config": ListOf(
                            Obj({"source": STRING, "requests": ListOf(STRING), "opaque": OPAQUE})
                        ),
                    }
                ),
                "nodeSelector": NODE_SELECTOR,
                "allocationTimestamp": TIME,
            }
        ),
        "reservedFor": ListOf(
            Obj({"apiGroup": STRING, "resource": STRING, "name": STRING, "uid": STRING})
        ),
        "devices": ListOf(
            Obj(
                {
                    "driver": STRING,
                    "pool": STRING,
                    "device": STRING,
                    "shareID": STRING,
                    "conditions": ListOf(CONDITION),
                    "data": ANY,
                    "networkData": Obj(
                        {
                            "interfaceName": STRING,
                            "ips": ListOf(STRING),
                            "hardwareAddress": STRING,
                        }
                    ),
                }
            )
        ),
    }
)
CLAIM = top(CLAIM_SPEC, CLAIM_STATUS)
TEMPLATE = top(Obj({"metadata": METADATA, "spec": CLAIM_SPEC}))
DEVICE_CLASS = top(
    Obj(
        {
            "selectors": SELECTORS,
            "config": ListOf(Obj({"opaque": OPAQUE})),
            "extendedResourceName": STRING,
        }
    )
)
_COUNTERS = MapOf(Obj({"value": QUANTITY}))
# Lists of attribute values and mappings to node resources are alpha in 1.36: known, not kept.
DEVICE = Obj(
    {
        "name": STRING,
        "attributes": MapOf(
            Obj(
                {"int": INTEGER, "bool": BOOLEAN, "string": STRING, "version": STRING},
                dropped=frozenset({"ints", "bools", "strings", "versions"}),
            )
        ),
        "capacity": MapOf(
            Obj(
                {
                    "value": QUANTITY,
                    "requestPolicy": Obj(
                        {
                            "default": QUANTITY,
                            "validValues": ListOf(QUANTITY),
                            "validRange": Obj({"min": QUANTITY, "max": QUANTITY, "step": QUANTITY}),
                        }
                    ),
                }
            )
        ),
        "consumesCounters": ListOf(Obj({"counterSet": STRING, "counters": _COUNTERS})),
        "nodeName": STRING,
        "nodeSelector": NODE_SELECTOR,
        "allNodes": BOOLEAN,
        "taints": ListOf(
            Obj({"key": STRING, "value": STRING, "effect": STRING, "timeAdded": TIME})
        ),
        "bindsToNode": BOOLEAN,
        "bindingConditions": ListOf(STRING),
        "bindingFailureConditions": ListOf(STRING),
        "allowMultipleAllocations": BOOLEAN,
    },
    dropped=frozenset({"nodeAllocatableResourceMappings"}),
)
SLICE = top(
    Obj(
        {
            "driver": STRING,
            "pool": Obj({"name": STRING, "generation": INTEGER, "resourceSliceCount": INTEGER}),
            "nodeName": STRING,
            "nodeSelector": NODE_SELECTOR,
            "allNodes": BOOLEAN,
            "devices": ListOf(DEVICE),
            "perDeviceNodeSelection": BOOLEAN,
            "sharedCounters": ListOf(Obj({"name": STRING, "counters": _COUNTERS})),
        }
    )
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
