"""Devices of a driver that dray does not know, and pods that want them."""

from tests.conformance.stand import NAMESPACE, Stand

from dray.kube.ports import CLAIMS, PODS, SLICES, Object, RefusedError

OTHER = "gpus.dray.dev"
"""A driver that dray does not know."""


async def publish_others(stand: Stand, *, counters: bool) -> None:
    """Five devices, of which four have together what one of them has."""
    devices: list[Object] = [
        {"name": f"part-{number}", **_consumes(2, counters)} for number in range(4)
    ]
    devices.append({"name": "whole", **_consumes(8, counters)})
    pool = {"name": "others", "generation": 1, "resourceSliceCount": 2 if counters else 1}
    spec = {"driver": OTHER, "allNodes": True, "pool": pool}
    parts: list[Object] = [{**spec, "devices": devices}]
    if counters:
        counted = {"name": "shares", "counters": {"slices": {"value": "8"}}}
        parts.append({**spec, "sharedCounters": [counted]})
    for number, part in enumerate(parts):
        await stand.kube.create(SLICES, {"metadata": {"name": f"others-{number}"}, "spec": part})


def _consumes(amount: int, counters: bool) -> Object:
    if not counters:
        return {}
    counted = {"counterSet": "shares", "counters": {"slices": {"value": str(amount)}}}
    return {"consumesCounters": [counted]}


async def take_other(stand: Stand, name: str) -> None:
    """A pod with a claim for one device of the other driver, made as soon as its class is known.

    Where the server drops taints, dray's webhook refuses claims of a class it has yet to hear of.
    """
    request = {"name": "device", "exactly": {"deviceClassName": OTHER}}
    claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}

    async def claimed() -> bool:
        try:
            await stand.kube.create(CLAIMS, claim, NAMESPACE)
        except RefusedError as refused:
            if "not known to dray yet" not in str(refused):
                raise
            return False
        return True

    await stand.until(claimed, f"dray knows class {OTHER}")
    spec = {
        "resourceClaims": [{"name": "device", "resourceClaimName": name}],
        "containers": [{"name": "app", "image": "app"}],
    }
    await stand.kube.create(PODS, {"metadata": {"name": name}, "spec": spec}, NAMESPACE)
