"""What tells devices apart for the claims of a pod, so that equal ones are judged once.

A thousand nodes with equal cards differ by uuids and names. As long as no selector and no
constraint of the pod reads them, the nodes are of one kind (``kinds``).
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

from dray.api import names
from dray.api.claims import Claim
from dray.api.devices import (
    Attribute,
    Capacity,
    Device,
    DeviceClass,
    ResourceSlice,
    Version,
)
from dray.cel.errors import CelError
from dray.cel.eval.program import compile
from dray.cel.reads import OWN_DOMAIN, Read
from dray_allocator.devices.selector_cache import named_reads
from dray_allocator.devices.versions import SchedulerVersion
from dray_allocator.scoring.preference import MODEL

Question = tuple[str, str]
"""Domain and name of an attribute."""
_INT64: Final = range(-(2**63), 2**63)


def questions_of(
    claims: Sequence[Claim], classes: dict[str, DeviceClass], rules: SchedulerVersion
) -> tuple[Question, ...] | None:
    """The attributes that the claims ask about; None where they may read any of them."""
    found: dict[Question, None] = {(names.DRIVER, MODEL): None}  # What a preference may name.
    for claim in claims:
        for constraint in claim.spec.constraints:
            for name in (constraint.match_attribute, constraint.distinct_attribute):
                domain, _, own = (name or "").rpartition("/")
                found[domain, own] = None
    for text in _selectors(claims, classes):
        reads = _reads(text, rules)
        if reads is None:
            return None
        found.update({(one.domain, one.name): None for one in reads if one.field == "attributes"})
    return tuple(found)


def _selectors(claims: Iterable[Claim], classes: dict[str, DeviceClass]) -> Iterator[str]:
    for _, ask in (one for claim in claims for one in claim.spec.alternatives()):
        of_class = classes.get(ask.device_class)
        yield from (*(of_class.selectors if of_class else ()), *ask.selectors)


def _reads(text: str, rules: SchedulerVersion) -> Sequence[Read] | None:
    try:
        return named_reads(compile(text, rules.language).tree)
    except CelError:
        return None  # The server may understand it all the same.


class DeviceEquivalence:
    """Numbers of devices: equal ones for devices that nothing of a pod tells apart."""

    def __init__(self, questions: tuple[Question, ...] | None) -> None:
        self._questions = questions
        self._numbers: dict[Hashable, int] = {}
        self._capacities: dict[int, tuple[dict[str, Capacity], int]] = {}
        """By identity: devices have capacities in common with all that have equal ones."""

    def of(self, part: ResourceSlice, device: Device) -> int:
        """The number of a device of a slice; its name does not count."""
        form = (
            part.driver,
            self._capacity(device.capacity),
            device.allow_multiple_allocations,
            device.taints,
            device.binding_conditions,
            repr(device.consumes) if device.consumes else "",
            device.binds_to_node,
            self._attributes(part.driver, device),
        )
        return self.number(form)

    def number(self, form: Hashable) -> int:
        """The same number for the same form, always."""
        return self._numbers.setdefault(form, len(self._numbers))

    def _capacity(self, capacity: dict[str, Capacity]) -> int:
        known = self._capacities.get(id(capacity))
        if known is None:
            known = capacity, self.number(("capacity", tuple(sorted(capacity.items(), key=_name))))
            self._capacities[id(capacity)] = known  # Keeps it, so that the identity stays its own.
        return known[1]

    def _attributes(self, driver: str, device: Device) -> Hashable:
        """Values with their types: 1 is not true. Those that fail any selector count always."""
        published = device.attributes
        if self._questions is None:
            return repr(sorted(published.items()))
        asked: list[Attribute] = []
        for domain, name in self._questions:
            asked.append(published.get(f"{domain}/{name}"))
            asked.append(published.get(name) if domain in (driver, OWN_DOMAIN, "") else None)
            if domain == OWN_DOMAIN:
                asked.append(published.get(f"{driver}/{name}"))
        frail = [entry for entry in published.items() if _is_frail(entry[1])]
        return repr((asked, frail))


def _name(entry: tuple[str, object]) -> str:
    return entry[0]


def _is_frail(value: object) -> bool:
    if value is None or isinstance(value, Version | tuple):
        return True
    return isinstance(value, int) and not isinstance(value, bool) and value not in _INT64
