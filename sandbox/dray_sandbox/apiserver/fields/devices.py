"""The kinds of `resource.k8s.io/v1`, complete."""

from dray_sandbox.apiserver.fields.parts import CONDITION, METADATA, NODE_SELECTOR, TOLERATIONS, top
from dray_sandbox.apiserver.types import (
    ANY,
    BOOLEAN,
    INTEGER,
    QUANTITY,
    STRING,
    TIME,
    ListOf,
    MapOf,
    Obj,
    Type,
)

_SELECTORS = ListOf(Obj({"cel": Obj({"expression": STRING})}))
_OPAQUE = Obj({"driver": STRING, "parameters": ANY})
_SUBREQUEST: dict[str, Type] = {
    "deviceClassName": STRING,
    "selectors": _SELECTORS,
    "allocationMode": STRING,
    "count": INTEGER,
    "tolerations": TOLERATIONS,
    "capacity": Obj({"requests": MapOf(QUANTITY)}),
}
_CLAIM_SPEC = Obj(
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
                "config": ListOf(Obj({"requests": ListOf(STRING), "opaque": _OPAQUE})),
            }
        )
    }
)
_RESULT = Obj(
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
_CLAIM_STATUS = Obj(
    {
        "allocation": Obj(
            {
                "devices": Obj(
                    {
                        "results": ListOf(_RESULT),
                        "config": ListOf(
                            Obj({"source": STRING, "requests": ListOf(STRING), "opaque": _OPAQUE})
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
CLAIM = top(_CLAIM_SPEC, _CLAIM_STATUS)
TEMPLATE = top(Obj({"metadata": METADATA, "spec": _CLAIM_SPEC}))
DEVICE_CLASS = top(
    Obj(
        {
            "selectors": _SELECTORS,
            "config": ListOf(Obj({"opaque": _OPAQUE})),
            "extendedResourceName": STRING,
        }
    )
)
_TAINT = Obj({"key": STRING, "value": STRING, "effect": STRING, "timeAdded": TIME})
TAINT_RULE = top(
    Obj(
        {
            "deviceSelector": Obj({"driver": STRING, "pool": STRING, "device": STRING}),
            "taint": _TAINT,
        }
    ),
    Obj({"conditions": ListOf(CONDITION)}),
)
_COUNTERS = MapOf(Obj({"value": QUANTITY}))
# Lists of attribute values and mappings to node resources are alpha in 1.36: they are dropped.
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
        "taints": ListOf(_TAINT),
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
