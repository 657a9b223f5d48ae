"""What a pod asks of the search, and the rules that hold for it."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from dray.api.claims import Claim, DeviceRequest
from dray.api.devices import Device, DeviceId, ResourceSlice
from dray.api.preference import Preference
from dray.messages.facts import ClusterObserved
from dray_allocator.claim_search.visible_devices import Rate, load_of
from dray_allocator.devices.capacity import Stated
from dray_allocator.devices.ordered_search import Key
from dray_allocator.devices.percentages import Share, amounts, shares_of
from dray_allocator.devices.versions import (
    CONSUMABLE_CAPACITY,
    DEVICE_BINDING,
    DEVICE_TAINTS,
    LIST_ATTRIBUTES,
    PARTITIONABLE,
    PRIORITIZED_LIST,
    SchedulerVersion,
    rules_for,
    rules_of,
)
from dray_allocator.nodes.ratings import LoadScore
from dray_allocator.placement import affected_requests
from dray_allocator.placement.pod_request import PodRequest
from dray_allocator.scoring.policies import by_load
from dray_allocator.scoring.preference import card_key, preference_of
from dray_allocator.state.state import AllocatorState

Preferences = tuple[tuple[tuple[str, Preference], ...], ...]
"""Per claim, the preferences of its requests that have one."""


@dataclass(frozen=True, slots=True)
class PodSearch:
    """The claims of a pod as structured parameters read them."""

    claims: tuple[Claim, ...]
    rules: SchedulerVersion
    load: LoadScore | None
    """How nodes and devices are ordered; None: as kube-scheduler's allocator has them."""
    preferences: Preferences = ()
    shares: tuple[Share, ...] = ()
    """Of every ask, in order."""

    @property
    def key(self) -> Hashable:
        """Equal for pods of one signature that are decided alike."""
        return self.rules, self.load, self.preferences, self.shares

    def asks(self) -> Iterator[tuple[DeviceRequest, Share]]:
        """Every request and alternative, and which share of a card it asks for."""
        found = (ask for claim in self.claims for _, ask in claim.spec.alternatives())
        return zip(found, self.shares, strict=True)

    def named(self) -> Iterator[tuple[str, DeviceRequest, Share]]:
        """The same with their names, as results have them: ``main`` or ``main/sub``."""
        named = (
            affected_requests.named(
                request.name if ask is request else f"{request.name}/{ask.name}",
                number,
                self.claims,
            )
            for number, claim in enumerate(self.claims)
            for request, ask in claim.spec.alternatives()
        )
        return ((name, *one) for name, one in zip(named, self.asks(), strict=True))

    def stated(self) -> Stated:
        """What these very asks request of a device: a share of a card is an amount only there."""
        shares = {id(ask): dict(share) for ask, share in self.asks() if share}

        def stated(ask: DeviceRequest, device: Device) -> Mapping[str, str]:
            share = shares.get(id(ask))
            return amounts(share, ask.capacity, device.capacity) if share else ask.capacity

        return stated

    def rate(self, state: AllocatorState) -> Rate | None:
        """The order of a slice's devices: the most liked, of them the fullest or the emptiest."""
        load = self.load
        if load is None:
            return None
        sign = -1 if load.card_fills else 1
        liked = next((one for some in self.preferences for _, one in some), ())

        def rate(part: ResourceSlice, device: Device) -> tuple[object, ...]:
            use = state.device_usage.of(DeviceId(part.driver, part.pool, device.name))
            return worth(liked, device), sign * load_of(device.capacity, use)

        return rate


def asked_of(state: AllocatorState, wanted: PodRequest) -> PodSearch:
    """The pod's open claims, with the rules that hold for it now."""
    facts = state.facts
    rules = rules_of(
        wanted.pod,
        list_attributes=facts.list_attributes,
        binding_conditions=facts.binding_conditions,
    )
    claims = wanted.claims
    shares = tuple(share for claim in wanted.claims for share in shares_of(claim))
    if wanted.placement.is_compatible:
        return PodSearch(claims, _of_server(state, rules), None, (), shares)
    preferences = tuple(
        tuple(
            (request.name, found)
            for request in claim.spec.requests
            if (found := preference_of(claim, request.name))
        )
        for claim in claims
    )
    if not any(preferences):
        preferences = ()
    return PodSearch(claims, rules, by_load(wanted.placement), preferences, shares)


def _of_server(state: AllocatorState, rules: SchedulerVersion) -> SchedulerVersion:
    """The rules of the server's version, with the features that were found to be on; conditions of
    devices only where somebody waits for them, as in ``rules``."""
    seen = state.facts.cluster
    known = rules_for(f"1.{state.selectors.minor}")
    features = known.features
    if seen is not None:
        features |= {name for name, is_on in _features(seen) if is_on}
    if not rules.device_binding:
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


def worth(preference: Preference, device: Device) -> Key:
    """What a device is worth to a preference; the lowest is liked most."""
    return card_key(preference, device) if preference else ()
