"""The kubelet's checks of a pod's claims before it calls a driver. Pure."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dray.api.errors import TemporaryError
from dray.kube.ports import Object
from dray_sandbox.kubelet.device_health import DeviceKey


class NotStartedError(TemporaryError):
    """The pod can't start now; the kubelet tries again at the pod's next resync or update."""


class ContainerNotCreatedError(NotStartedError):
    """A container of the pod can't be created; the kubelet retries soon."""


@dataclass(frozen=True, slots=True)
class ClaimInfo:
    """A claim that a pod uses on this node, with its drivers."""

    uid: str
    namespace: str
    name: str
    drivers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PluginDevice:
    """A prepared device in a plugin's answer."""

    driver: str
    pool: str
    device: str
    requests: tuple[str, ...]
    """The requests that the device belongs to; empty: every request."""
    cdi_ids: tuple[str, ...]
    share_id: str = ""

    @property
    def key(self) -> DeviceKey:
        """The key of the device's health."""
        return (self.driver, self.pool, self.device)

    @property
    def resource_id(self) -> str:
        """The device's id in the status of containers."""
        return self.cdi_ids[0] if self.cdi_ids else "/".join(self.key)

    def belongs_to(self, request: str) -> bool:
        """Whether a container that names the request, or none, gets the device."""
        return not request or not self.requests or request in self.requests


Prepared = Mapping[str, Sequence[PluginDevice]]
"""The devices of a pod, by entry of ``spec.resourceClaims``."""


def claim_names(pod: Object) -> dict[str, tuple[str, bool]]:
    """By entry of ``spec.resourceClaims``, the claim's name and whether the pod must own it.

    Raises:
        NotStartedError: a claim has not been generated from its template yet.
    """
    made = {
        entry["name"]: entry.get("resourceClaimName")
        for entry in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    names: dict[str, tuple[str, bool]] = {}
    for entry in pod["spec"].get("resourceClaims") or ():
        if direct := entry.get("resourceClaimName"):
            names[entry["name"]] = (direct, False)
        elif entry["name"] not in made:
            raise NotStartedError(
                f"pod claim {entry['name']}: the ResourceClaim has not been created yet"
            )
        elif made[entry["name"]]:
            names[entry["name"]] = (str(made[entry["name"]]), True)
    return names


def claim_info(pod: Object, claim: Object, must_own: bool) -> ClaimInfo:
    """The claim, checked for its use by ``pod``.

    Raises:
        NotStartedError: it belongs to another pod, or is not allocated or not reserved for this
            pod.
    """
    metadata, uid = claim["metadata"], pod["metadata"]["uid"]
    what = f"ResourceClaim {metadata['namespace']}/{metadata['name']}"
    owners = metadata.get("ownerReferences") or ()
    if must_own and not any(one.get("controller") and one["uid"] == uid for one in owners):
        raise NotStartedError(f"{what} was not created for this pod")
    status = claim.get("status") or {}
    allocation = status.get("allocation")
    if not allocation:
        raise NotStartedError(f"{what} is not allocated")
    if uid not in {entry["uid"] for entry in status.get("reservedFor") or ()}:
        raise NotStartedError(
            f"pod {pod['metadata']['name']} ({uid}) is not allowed to use {what} "
            f"({metadata['uid']}): it is not in reservedFor"
        )
    results = (allocation.get("devices") or {}).get("results") or ()
    drivers = tuple(dict.fromkeys(result["driver"] for result in results))
    return ClaimInfo(metadata["uid"], metadata["namespace"], metadata["name"], drivers)


def container_devices(pod: Object, prepared: Prepared) -> dict[str, tuple[str, ...]]:
    """CDI ids by container."""
    containers = [
        *(pod["spec"].get("initContainers") or ()),
        *(pod["spec"].get("containers") or ()),
    ]
    return {container["name"]: _ids(container, prepared) for container in containers}


def _ids(container: Object, prepared: Prepared) -> tuple[str, ...]:
    ids: dict[str, None] = {}
    claims = list((container.get("resources") or {}).get("claims") or ())
    random.shuffle(claims)  # a kubelet's order is random: it uses a map
    for entry in claims:
        for device in prepared.get(entry["name"], ()):
            if device.belongs_to(entry.get("request") or ""):
                ids.update(dict.fromkeys(device.cdi_ids))
    return tuple(ids)
