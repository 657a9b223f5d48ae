"""The claims that a pod refers to, and the devices that they hold."""

from collections.abc import Iterator, Mapping

from dray.api import names
from dray.api.quantities import readable_quantity
from dray.kube.convert_pods import claim_names
from dray.kube.ports import CLAIMS, PODS, Kube, NotFoundError, Object, RefusedError


def holdings_of(
    claims: tuple[Object, ...],
    node: str,
    driver: str = "",
    *,
    containers: Mapping[str, str] | None = None,
) -> list[str]:
    """One line per device, for one driver or all drivers. Shows ``node``, the pool if it is not the
    node's, and the container that uses the device if ``containers`` has its request."""
    lines = []
    for claim in claims:
        for result in devices_of(claim, driver):
            consumed = result.get("consumedCapacity") or {}
            amounts = " ".join(
                f"{k}={readable_quantity(v)}" for k, v in sorted(consumed.items()) if v != "0"
            )
            pool = result["pool"]
            where = f"on {pool}" if node in ("", pool) else f"of pool {pool} on {node}"
            request = str(result.get("request") or "").partition("/")[0]
            user = (containers or {}).get(request, "")
            for_whom = f"  for {user}" if user else ""
            lines.append(f"  {result['device']} {where}  {amounts}".rstrip() + for_whom)
    return lines


def containers_of(pod: Object) -> dict[str, str]:
    """The containers that use each request of the pod's claims, by the request's name; empty if
    all containers use all requests."""
    spec = pod.get("spec") or {}
    users: dict[str, list[str]] = {}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for use in (container.get("resources") or {}).get("claims") or ():
            if request := use.get("request"):
                users.setdefault(request, []).append(container["name"])
    kinds = "container", "containers"
    return {name: f"{kinds[len(of) > 1]} {', '.join(of)}" for name, of in users.items()}


def devices_of(claim: Object, driver: str = "") -> Iterator[Object]:
    """The devices that a claim holds, for one driver or all drivers."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        if not driver or result.get("driver") == driver:
            yield result


def is_without_devices(claim: Object) -> bool:
    """Whether a claim asks for no device. Such a claim accounts for the CPU and other resources of
    a pod without GPUs."""
    devices = (claim.get("spec") or {}).get("devices")
    return devices is not None and not devices.get("requests")


async def claims_of(kube: Kube, pod: Object) -> tuple[tuple[Object, ...], tuple[Object, ...]]:
    """The claims that dray derived, and the pod's other claims; missing ones are left out."""
    ours: list[Object] = []
    strange: list[Object] = []
    for reference, name in claim_names(pod).items():
        try:
            claim = await kube.get(CLAIMS, name, pod["metadata"]["namespace"])
        except NotFoundError:
            continue
        labels = claim["metadata"].get("labels") or {}
        is_ours = reference == names.CLAIM_REFERENCE or names.POOL_LABEL in labels
        (ours if is_ours else strange).append(claim)
    return tuple(ours), tuple(strange)


async def sharers_of(kube: Kube, pod: Object, claims: tuple[Object, ...]) -> tuple[str, ...]:
    """Waiting pods without dray's annotations that refer to a claim of the pod by its name."""
    shared = {
        claim["metadata"]["name"]
        for claim in claims
        if not claim["metadata"].get("ownerReferences")
    }
    if not shared:
        return ()
    try:
        pods = await kube.list(PODS, pod["metadata"]["namespace"], field_selector="spec.nodeName=")
    except RefusedError:
        return ()
    return tuple(
        one["metadata"]["name"]
        for one in pods.objects
        if names.GPUPOOL not in (one["metadata"].get("annotations") or {})
        and not shared.isdisjoint(
            ref.get("resourceClaimName") for ref in one["spec"].get("resourceClaims") or ()
        )
    )
