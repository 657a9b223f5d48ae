"""Parts that kinds of several groups share: metadata, conditions, node selectors, tolerations."""

from dray_sandbox.apiserver.types import (
    ANY,
    BOOLEAN,
    INTEGER,
    STRING,
    TIME,
    ListOf,
    MapOf,
    Obj,
    Type,
)

_OWNER = Obj(
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
        "ownerReferences": ListOf(_OWNER),
        "finalizers": ListOf(STRING),
        "managedFields": ListOf(ANY),
    }
)


def top(spec: Type | None = None, status: Type | None = None, **more: Type) -> Obj:
    """A top-level kind: type, metadata and the given fields."""
    fields: dict[str, Type] = {"apiVersion": STRING, "kind": STRING, "metadata": METADATA}
    if spec is not None:
        fields["spec"] = spec
    if status is not None:
        fields["status"] = status
    return Obj(fields | more)


_NODE_SELECTOR_REQUIREMENT = Obj({"key": STRING, "operator": STRING, "values": ListOf(STRING)})
NODE_SELECTOR = Obj(
    {
        "nodeSelectorTerms": ListOf(
            Obj(
                {
                    "matchExpressions": ListOf(_NODE_SELECTOR_REQUIREMENT),
                    "matchFields": ListOf(_NODE_SELECTOR_REQUIREMENT),
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
