"""Claims and slices as Kubernetes has them, handed to the allocator's core."""

from typing import Any

from dray.api import names
from dray.kube.convert import claim_from, slice_from
from dray.messages.facts import ClaimObserved, PodObserved, SliceObserved

Object = dict[str, Any]


def request(name: str = "gpu", **exactly: Any) -> Object:
    """A request of our class for a small share, unless it says otherwise."""
    capacity = {"requests": {"virtual_tflops": "1", "virtual_vram": "1Gi"}}
    return {
        "name": name,
        "exactly": {"deviceClassName": names.DEVICE_CLASS, "capacity": capacity, **exactly},
    }


def of_capacity(**requests: str) -> Object:
    """A request that names these amounts."""
    return request(capacity={"requests": requests})


def devices_of(*requests: Object, constraints: tuple[Object, ...] = ()) -> Object:
    """``spec.devices``."""
    return {"requests": list(requests), "constraints": list(constraints)}


def card(name: str, *, group: str = "one", **fields: Any) -> Object:
    """A device of 100 TFLOPS and 40Gi that may be shared."""
    amounts = {"virtual_tflops": {"value": "100"}, "virtual_vram": {"value": "40Gi"}}
    return {
        "name": name,
        "attributes": {"uuid": {"string": name}, "group": {"string": group}},
        "capacity": amounts | fields.pop("capacity", {}),
        "allowMultipleAllocations": True,
        **fields,
    }


def publish(world: Any, node: str, *cards: Object, count: int = 1, **spec: Any) -> None:
    """The first slice of a node's pool, of ``count``, and the node."""
    obj = {
        "metadata": {"name": f"slice-{node}", "uid": node},
        "spec": {
            "driver": names.DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": count},
            "devices": list(cards),
            **spec,
        },
    }
    known = slice_from(obj)
    world.see(SliceObserved(revision=world.next(), slice=known))
    world.node(world.a_node(node))


def as_alternatives(devices: Object) -> Object:
    """The same, but that every request is the one alternative of itself: this way the structured
    search decides."""
    alternatives = [
        {"name": one["name"], "firstAvailable": [{"name": "only", **one["exactly"]}]}
        if "exactly" in one
        else one
        for one in devices["requests"]
    ]
    return {**devices, "requests": alternatives}


def submit(world: Any, name: str, devices: Object) -> None:
    """A pod and its claim."""
    obj = {
        "metadata": {
            "name": f"{name}-gpu",
            "namespace": "ns",
            "uid": f"claim-{name}",
            "resourceVersion": str(world.next()),
            "labels": {names.POOL_LABEL: "pool"},
        },
        "spec": {"devices": devices},
    }
    world.see(ClaimObserved(revision=world.next(), claim=claim_from(obj)))
    world.see(PodObserved(revision=world.next(), pod=world.a_pod(name)))


def reasons_of(world: Any, name: str) -> str:
    """Why it waits, as a person reads it."""
    assert name not in world.decisions()
    reasons = world.waits(name)[-1].reasons
    assert reasons, "it waits without a word"
    assert all(len(str(reason)) < 2000 for reason in reasons)
    return "\n".join(map(str, reasons))


def others_go_on(world: Any) -> None:
    """A claim that makes sense, asked for after the senseless one, gets its card."""
    submit(world, "sensible", devices_of(request()))
    assert "sensible" in world.decisions()
