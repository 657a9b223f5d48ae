"""The open claims of a pod, and the version of kube-scheduler that decides them."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from dray.api.claims import Claim, DeviceRequest
from dray.api.devices import Device
from dray.api.preference import Preference
from dray.messages.facts import ClusterObserved
from dray_allocator.devices.capacity import RequestedCapacity
from dray_allocator.devices.percentages import Share, amounts, shares_of
from dray_allocator.devices.versions import (
    CONSUMABLE_CAPACITY,
    DEVICE_BINDING,
    DEVICE_TAINTS,
    LIST_ATTRIBUTES,
    PARTITIONABLE,
    PRIORITIZED_LIST,
    SchedulerVersion,
    scheduler_version,
    version_for_pod,
)
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.placement.validate_claim import most_devices
from dray_allocator.scoring.preference import preference_of
from dray_allocator.scoring.topology import may_be_connected
from dray_allocator.state.state import AllocatorState

Preferences = tuple[dict[str, Preference], ...]
"""Per claim, the preferences of its requests that have one."""


@dataclass(frozen=True, slots=True)
class PodClaims:
    """The open claims of a pod."""

    claims: tuple[Claim, ...]
    version: SchedulerVersion
    is_compatible: bool
    """Whether kube-scheduler's order decides (KubernetesCompatible)."""
    preferences: Preferences
    shares: tuple[Share, ...]
    """Per request and alternative, in order."""
    connects: bool
    """Whether devices of a better link level are preferred."""

    @property
    def key(self) -> Hashable:
        """Equal for pods of one signature that have the same results."""
        preferences = tuple(tuple(one.items()) for one in self.preferences)
        return self.version, self.is_compatible, preferences, self.shares, self.connects

    @property
    def prefers(self) -> bool:
        """Whether a request has a preference."""
        return any(self.preferences)

    def asks(self) -> Iterator[tuple[DeviceRequest, Share]]:
        """Every request and alternative, and the share of a device that it asks for."""
        found = (ask for claim in self.claims for _, ask in claim.spec.alternatives())
        return zip(found, self.shares, strict=True)

    def requested_capacity(self) -> RequestedCapacity:
        """The amounts that these requests ask of a device: a percentage is an amount of that device
        only."""
        shares = {id(ask): dict(share) for ask, share in self.asks() if share}

        def requested(ask: DeviceRequest, device: Device) -> Mapping[str, str]:
            share = shares.get(id(ask))
            return amounts(share, ask.capacity, device.capacity) if share else ask.capacity

        return requested


def pod_claims(state: AllocatorState, wanted: PodRequest) -> PodClaims:
    """The pod's open claims, with the version that decides them."""
    facts, placement = state.facts, wanted.pattern.placement
    version = version_for_pod(
        wanted.pod,
        list_attributes=facts.list_attributes,
        binding_conditions=facts.binding_conditions,
    )
    claims = wanted.claims
    shares = tuple(share for claim in wanted.claims for share in shares_of(claim))
    if placement.is_compatible:
        nothing: Preferences = tuple({} for _ in claims)
        return PodClaims(claims, _of_server(state, version), True, nothing, shares, False)
    preferences = tuple(
        {
            request.name: found
            for request in claim.spec.requests
            if (found := preference_of(claim, request.name))
        }
        for claim in claims
    )
    devices = sum(map(most_devices, wanted.claims))
    connects = may_be_connected(devices, placement.topology)
    return PodClaims(claims, version, False, preferences, shares, connects)


def _of_server(state: AllocatorState, version: SchedulerVersion) -> SchedulerVersion:
    """The version of the server with its enabled features. Binding conditions count only
    if the binder waits for them, as in ``version``."""
    seen = state.facts.cluster
    known = scheduler_version(f"1.{state.selectors.minor}")
    features = known.features
    if seen is not None:
        features |= {name for name, is_on in _features(seen) if is_on}
    if not version.device_binding:
        features -= {DEVICE_BINDING}
    return replace(known, features=features)


def _features(seen: ClusterObserved) -> tuple[tuple[str, bool], ...]:
    return (
        (CONSUMABLE_CAPACITY, seen.consumable_capacity),
        (DEVICE_BINDING, seen.binding_conditions),
        (DEVICE_TAINTS, seen.device_taints),
        (LIST_ATTRIBUTES, seen.list_attributes),
        (PARTITIONABLE, seen.partitionable_devices),
        (PRIORITIZED_LIST, seen.prioritized_list),
    )
