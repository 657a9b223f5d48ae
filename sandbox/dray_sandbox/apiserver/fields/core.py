"""Nodes, leases and kinds without a table."""

from dray_sandbox.apiserver.fields.parts import METADATA, top
from dray_sandbox.apiserver.types import (
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
