"""What a version of Kubernetes, with its feature gates, decides differently.

kube-scheduler carries three allocators, *stable*, *incubating* and *experimental*, and uses the
first that knows all the features that are on. Where versions or allocators decide differently,
the difference has a name here; `docs/kubernetes-differences.md` tells which and why.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from dray.api import names
from dray.api.errors import InvalidInputError
from dray.api.pods import Pod
from dray.cel.environment import Environment, Mode, environment

ADMIN_ACCESS: Final = "DRAAdminAccess"
CONSUMABLE_CAPACITY: Final = "DRAConsumableCapacity"
DEVICE_BINDING: Final = "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus"
DEVICE_TAINTS: Final = "DRADeviceTaints"
FRACTIONAL_RANGE: Final = "DRAFractionalCapacityRange"
LIST_ATTRIBUTES: Final = "DRAListTypeAttributes"
PARTITIONABLE: Final = "DRAPartitionableDevices"
PRIORITIZED_LIST: Final = "DRAPrioritizedList"

_BINDING_GATES: Final = frozenset({"DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"})
_DEVICE_STATUS: Final = "DRAResourceClaimDeviceStatus"
"""By itself it changes only which allocator 1.34 uses."""
_DEFAULTS_135: Final = frozenset({ADMIN_ACCESS, PRIORITIZED_LIST})
_DEFAULTS_136: Final = _DEFAULTS_135 | {
    CONSUMABLE_CAPACITY,
    DEVICE_BINDING,
    DEVICE_TAINTS,
    PARTITIONABLE,
}
_DEFAULTS: Final = {
    34: _DEFAULTS_135 | {_DEVICE_STATUS},
    35: _DEFAULTS_135,
    36: _DEFAULTS_136,
    37: _DEFAULTS_136 | {FRACTIONAL_RANGE},
}
_SIMPLE: Final = frozenset({ADMIN_ACCESS, PRIORITIZED_LIST, PARTITIONABLE, DEVICE_TAINTS})
"""Features that the allocator without sharing and binding conditions knows."""
NEWEST: Final = "1.37"
"""The newest minor of Kubernetes whose rules are known."""
KNOWN: Final = _DEFAULTS[37] | {LIST_ATTRIBUTES}


@dataclass(frozen=True, slots=True)
class SchedulerVersion:
    """One way to decide: what is on, and what the version is known for."""

    minor: int
    """The x of Kubernetes 1.x."""
    features: frozenset[str]

    @property
    def language(self) -> Environment:
        """The CEL of stored selectors."""
        lists = True if self.list_attributes else None
        return environment(f"1.{self.minor}", Mode.STORED, list_attributes=lists)

    # Features.

    @property
    def admin_access(self) -> bool:
        return ADMIN_ACCESS in self.features

    @property
    def consumable_capacity(self) -> bool:
        return CONSUMABLE_CAPACITY in self.features

    @property
    def device_binding(self) -> bool:
        return DEVICE_BINDING in self.features

    @property
    def device_taints(self) -> bool:
        return DEVICE_TAINTS in self.features

    @property
    def fractional_range(self) -> bool:
        return FRACTIONAL_RANGE in self.features

    @property
    def list_attributes(self) -> bool:
        return LIST_ATTRIBUTES in self.features

    @property
    def partitionable(self) -> bool:
        return PARTITIONABLE in self.features

    @property
    def prioritized_list(self) -> bool:
        return PRIORITIZED_LIST in self.features

    # Which of the allocators it is.

    @property
    def is_simple(self) -> bool:
        """Whether the allocator in use knows neither sharing nor binding: *stable* of 1.36 and
        1.37, *stable* and *incubating* before."""
        return self.features <= _SIMPLE

    # Differences, by name. Those of 1.37 are repairs.

    @property
    def distinct_by_request(self) -> bool:
        """`distinctAttribute` remembers one value per request, not one per device."""
        return self.minor <= 36

    @property
    def match_list_stays_narrow(self) -> bool:
        """`matchAttribute` over lists keeps what a device that was given back had narrowed."""
        return self.minor <= 36

    @property
    def counters_by_pool_name(self) -> bool:
        """Pools of the same name share counters, whatever their driver."""
        return self.minor <= 36

    @property
    def big_counters_are_lent(self) -> bool:
        """A device whose counters have a binary fraction loses them when it is given back."""
        return self.minor <= 36

    @property
    def counter_sets_seen_everywhere(self) -> bool:
        """Slices with counter sets belong to every node, also those of another one."""
        return self.minor <= 36

    @property
    def all_by_what_is_left(self) -> bool:
        """Mode All leaves out a shared device with too little left; later it then fails."""
        return self.minor <= 36

    @property
    def refuses_odd_amounts(self) -> bool:
        """An amount below zero, or beyond 64 bits in a range, is an error."""
        return self.minor >= 37

    @property
    def config_per_request(self) -> bool:
        """The claim's configuration is repeated for each request that it names."""
        return self.minor <= 36

    @property
    def bare_share_frees_counters(self) -> bool:
        """A share without consumed capacity doesn't count as use of the device's counters."""
        return self.minor <= 36

    @property
    def knows_compatibility_groups(self) -> bool:
        """Slices with compatibility groups are left out, for the gate is off."""
        return self.minor >= 37

    @property
    def knows_distinct(self) -> bool:
        """Whether `distinctAttribute` is known to the allocator in use."""
        return not self.is_simple

    @property
    def sharing_seen_by_selectors(self) -> bool:
        """Whether `device.allowMultipleAllocations` tells selectors the truth."""
        return not self.is_simple

    @property
    def sorts(self) -> bool:
        """Whether pools and slices have an order, and those with binding conditions come last."""
        return self.minor >= 36 and not self.is_simple

    @property
    def copies_tolerations(self) -> bool:
        """Whether a result repeats the tolerations of its request."""
        return self.minor >= 36 or (self.minor == 35 and not self.is_simple)

    @property
    def uses_incomplete_pools(self) -> bool:
        """Devices of a pool are used though some of its slices are missing."""
        return self.minor <= 34

    @property
    def sees_own_slices_only(self) -> bool:
        """A pool is complete if the node sees all its slices; others are not looked at."""
        return self.minor <= 34

    @property
    def stops_at_invalid_pools(self) -> bool:
        """A search that reaches an invalid pool ends with an error, whatever else is there."""
        return self.minor <= 34

    @property
    def all_forgets_alternative(self) -> bool:
        """After its first device, an alternative in mode All goes on as the first alternative."""
        return self.minor <= 35

    @property
    def second_all_is_first(self) -> bool:
        """The second of two alternatives in mode All is about the devices of the first."""
        return self.minor <= 35

    @property
    def repeats_within_request(self) -> bool:
        """One request may take the same shared device several times."""
        return self.minor <= 35 and self.consumable_capacity


def rules_for(version: str, features: Iterable[str] | None = None) -> SchedulerVersion:
    """The rules of a server of ``version`` (``1.36``); ``features`` are the gates that are on.

    None: the gates that the version has on by default. A version that dray doesn't know is taken
    for the nearest that it knows.

    Raises:
        InvalidInputError: ``version`` is none, or a feature is one that dray can't decide by.
    """
    try:
        minor = environment(version, Mode.STORED).minor
    except ValueError as error:
        raise InvalidInputError(str(error)) from None
    if features is None:
        return SchedulerVersion(minor, _DEFAULTS[minor])
    stated = frozenset(features)
    if stated >= _BINDING_GATES:
        stated |= {DEVICE_BINDING}
    own = {_DEVICE_STATUS} & stated if minor == 34 else frozenset()
    stated = stated - _BINDING_GATES | own
    if unknown := sorted(stated - KNOWN - own):
        raise InvalidInputError(
            f"feature {unknown[0]!r} is none that dray decides by: expected some of "
            f"{', '.join(sorted(KNOWN))}"
        )
    return SchedulerVersion(minor, stated)


def rules_of(pod: Pod, *, list_attributes: bool, binding_conditions: bool) -> SchedulerVersion:
    """The rules for a pod: the newest, whatever the server's version, for earlier ones differ in
    faults only. What the server does not keep is in no slice and no claim.

    If dray binds the pod, ``binding_conditions`` says whether conditions of devices are waited for.
    """
    waits = binding_conditions or pod.binder != names.OWNER_DRAY
    return _newest_rules(waits, list_attributes)


@cache
def _newest_rules(waits: bool, list_attributes: bool) -> SchedulerVersion:
    features = rules_for(NEWEST).features
    if list_attributes:
        features |= {LIST_ATTRIBUTES}
    return rules_for(NEWEST, features if waits else features - {DEVICE_BINDING})
