"""The requirements of a claim, computed once for all claims of equal content."""

from collections.abc import Iterator
from typing import Final

import msgspec

from dray.api.claims import Claim, DeviceRequest
from dray.api.devices import DeviceClass, OpaqueConfig
from dray.api.names import PLACEMENT_FIELD, TOPOLOGY_FIELD
from dray.api.placement import Placement
from dray_allocator.devices.device_requests import DeviceRequirements
from dray_allocator.devices.driver_parameters import own_parameters
from dray_allocator.devices.percentages import percents
from dray_allocator.devices.table_scope import is_claim_beyond_table
from dray_allocator.placement.validate_claim import most_devices, validate_claim
from dray_allocator.scoring.preference import preference_of
from dray_allocator.state.facts import Facts, Signature
from dray_allocator.values.cache_budget import CacheBudget

_MOST_BYTES: Final = 2**24


class ClaimRequirements(msgspec.Struct, frozen=True):
    """What follows from a claim's spec and the classes that it names."""

    is_beyond_table: bool
    """Whether a request is outside the scope of the node table (``devices.table_scope``)."""
    asks: tuple[DeviceRequirements, ...]
    """The device requests, as of a pod's first claim; none if the claim is refused or outside
    the scope of the node table."""
    weighed: tuple[DeviceRequirements, ...]
    """The requests that count for weighted capacities (``scoring.weighted``), even if the claim is
    outside that scope. Of alternatives, only the first one counts; requests of mode All don't."""
    nonsense: tuple[str, ...]
    """Why the claim can't be decided, in words."""
    nonsense_as_kubernetes: tuple[str, ...]
    """The same in placement mode KubernetesCompatible."""
    most_devices: int
    """The maximum number of devices that it may get."""
    missing: tuple[str, ...]
    """DeviceClasses that it names and that do not exist."""
    placement: tuple[str, str]
    """Placement and topology of the claim itself."""
    config: tuple[OpaqueConfig, ...]
    """Configuration of the classes, each with its requests, then the claim's own."""

    def faults(self, placement: Placement) -> tuple[str, ...]:
        """Why no search can decide it."""
        return self.nonsense_as_kubernetes if placement.is_compatible else self.nonsense


class ClaimRequirementsCache:
    """A bounded cache of requirements. It changes no result as long as the classes and the
    fleet, which numbers the capacity shapes, are the same."""

    def __init__(self) -> None:
        self._known: dict[Signature, ClaimRequirements] = {}
        self._room = CacheBudget(_MOST_BYTES)

    def of(self, facts: Facts, claim: Claim) -> ClaimRequirements:
        """The requirements of a claim of these facts."""
        key = facts.signatures[claim.uid]
        known = self._known.get(key)
        if known is None:
            if not self._room.takes(sum(map(len, key))):
                self._known.clear()
            known = self._known[key] = _requirements_of(facts, claim)
        return known


def _requirements_of(facts: Facts, claim: Claim) -> ClaimRequirements:
    in_full = is_claim_beyond_table(claim.spec)
    named = [ask.device_class for _, ask in claim.spec.alternatives() if ask.device_class]
    nonsense = tuple(validate_claim(claim, is_compatible=False))
    named_asks = () if nonsense else tuple(_weighed(claim))
    weighed = tuple(_ask(facts, claim, ask, *names) for ask, names in named_asks)
    known = facts.classes
    return ClaimRequirements(
        in_full,
        () if in_full else weighed,
        weighed,
        nonsense,
        tuple(validate_claim(claim, is_compatible=True)),
        most_devices(claim),
        tuple(name for name in named if name not in known),
        _placement(claim),
        _config(facts, claim),
    )


def _weighed(claim: Claim) -> Iterator[tuple[DeviceRequest, tuple[str, ...]]]:
    """The requests that count for a score, with the names that configuration may use for them."""
    for request in claim.spec.requests:
        ask = request.alternatives[0]
        if ask.mode == "ExactCount" and not ask.admin_access:
            yield (
                ask,
                (request.name, *((f"{request.name}/{ask.name}",) if ask is not request else ())),
            )


def _ask(facts: Facts, claim: Claim, request: DeviceRequest, *names: str) -> DeviceRequirements:
    selectors = (*_class(facts, request.device_class).selectors, *request.selectors)
    constraints = tuple(
        constraint
        for constraint in claim.spec.constraints
        if not constraint.requests or request.name in constraint.requests
    )
    signature = msgspec.json.encode((request.device_class, selectors, request.tolerations))
    shares = percents(claim, *names)
    return DeviceRequirements(
        0,
        request,
        selectors,
        constraints,
        signature,
        shares,
        preference_of(claim, request.name),
    )


def _placement(claim: Claim) -> tuple[str, str]:
    for parameters in own_parameters(claim):
        placement = str(parameters.get(PLACEMENT_FIELD, ""))
        topology = str(parameters.get(TOPOLOGY_FIELD, ""))
        if placement or topology:
            return placement, topology
    return "", ""


def _config(facts: Facts, claim: Claim) -> tuple[OpaqueConfig, ...]:
    requests: dict[str, list[str]] = {}
    for request in claim.spec.requests:
        requests.setdefault(request.device_class, []).append(request.name)
    from_classes = [
        OpaqueConfig(config.driver, config.parameters, tuple(named), "FromClass")
        for name, named in requests.items()
        for config in _class(facts, name).config
    ]
    return (*from_classes, *claim.spec.config)


def _class(facts: Facts, name: str) -> DeviceClass:
    return facts.classes.get(name) or DeviceClass(name)
