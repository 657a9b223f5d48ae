"""Differences between versions of kube-scheduler, by version and feature gates.

kube-scheduler has three allocators, *stable*, *incubating* and *experimental*, and uses the first
one that supports all enabled features. Each difference between versions or allocators is a named
property; `docs/kubernetes-differences.md` describes them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from dray.api import names
from dray.api.errors import InvalidInputError
from dray.api.pods import Pod
from dray.cel.environment import Environment, Mode, environment

_ADMIN_ACCESS: Final = "DRAAdminAccess"
CONSUMABLE_CAPACITY: Final = "DRAConsumableCapacity"
DEVICE_BINDING: Final = "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus"
DEVICE_TAINTS: Final = "DRADeviceTaints"
_FRACTIONAL_RANGE: Final = "DRAFractionalCapacityRange"
LIST_ATTRIBUTES: Final = "DRAListTypeAttributes"
PARTITIONABLE: Final = "DRAPartitionableDevices"
PRIORITIZED_LIST: Final = "DRAPrioritizedList"

_BINDING_GATES: Final = frozenset({"DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"})
_DEVICE_STATUS: Final = "DRAResourceClaimDeviceStatus"
"""Alone, this gate only changes the allocator that 1.34 uses."""
_DEFAULTS_135: Final = frozenset({_ADMIN_ACCESS, PRIORITIZED_LIST})
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
    37: _DEFAULTS_136 | {_FRACTIONAL_RANGE},
}
_SIMPLE: Final = frozenset({_ADMIN_ACCESS, PRIORITIZED_LIST, PARTITIONABLE, DEVICE_TAINTS})
"""Features of the allocator without consumable capacity and binding conditions."""
NEWEST: Final = "1.37"
"""The newest supported minor version of Kubernetes."""
KNOWN: Final = _DEFAULTS[37] | {LIST_ATTRIBUTES}


@dataclass(frozen=True, slots=True)
class SchedulerVersion:
    """A kube-scheduler version with its feature gates."""

    minor: int
    """The x of Kubernetes 1.x."""
    features: frozenset[str]

    @property
    def language(self) -> Environment:
        """The CEL environment for stored selectors."""
        lists = True if self.list_attributes else None
        return environment(f"1.{self.minor}", Mode.STORED, list_attributes=lists)

    # Feature gates.

    @property
    def admin_access(self) -> bool:
        return _ADMIN_ACCESS in self.features

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
        return _FRACTIONAL_RANGE in self.features

    @property
    def list_attributes(self) -> bool:
        return LIST_ATTRIBUTES in self.features

    @property
    def partitionable(self) -> bool:
        return PARTITIONABLE in self.features

    @property
    def prioritized_list(self) -> bool:
        return PRIORITIZED_LIST in self.features

    # The allocator in use.

    @property
    def is_simple(self) -> bool:
        """Whether the allocator in use supports neither consumable capacity nor binding conditions:
        *stable* of 1.36 and 1.37, *stable* and *incubating* before."""
        return self.features <= _SIMPLE

    # Differences. Those of 1.37 are fixes.

    @property
    def distinct_by_request(self) -> bool:
        """`distinctAttribute` keeps one value per request instead of one per device."""
        return self.minor <= 36

    @property
    def match_list_stays_narrow(self) -> bool:
        """`matchAttribute` over lists stays narrowed after a device is deallocated."""
        return self.minor <= 36

    @property
    def counters_by_pool_name(self) -> bool:
        """Pools with the same name share counters, even if their drivers differ."""
        return self.minor <= 36

    @property
    def big_counters_are_aliased(self) -> bool:
        """The sum of a counter aliases a device's amount, if that is a big decimal (`1.5Gi`): the
        amount is 0 after the device is deallocated."""
        return self.minor <= 36

    @property
    def counter_sets_seen_everywhere(self) -> bool:
        """Every node sees all slices with counter sets, including those for other nodes."""
        return self.minor <= 36

    @property
    def all_needs_free_capacity(self) -> bool:
        """Mode All skips a shared device with too little capacity left, instead of failing."""
        return self.minor <= 36

    @property
    def refuses_invalid_amounts(self) -> bool:
        """A negative amount, or one beyond 64 bits in a valid range, is an error."""
        return self.minor >= 37

    @property
    def config_per_request(self) -> bool:
        """The claim's configuration is repeated for each request that it names."""
        return self.minor <= 36

    @property
    def bare_share_frees_counters(self) -> bool:
        """A share without consumed capacity does not consume the device's counters."""
        return self.minor <= 36

    @property
    def knows_compatibility_groups(self) -> bool:
        """Slices with compatibility groups are ignored, because the gate is off."""
        return self.minor >= 37

    @property
    def knows_distinct(self) -> bool:
        """Whether the allocator in use supports `distinctAttribute`."""
        return not self.is_simple

    @property
    def sharing_seen_by_selectors(self) -> bool:
        """Whether selectors see `device.allowMultipleAllocations`; else it is always false."""
        return not self.is_simple

    @property
    def sorts(self) -> bool:
        """Whether pools and slices are sorted, those with binding conditions last."""
        return self.minor >= 36 and not self.is_simple

    @property
    def copies_tolerations(self) -> bool:
        """Whether a result repeats the tolerations of its request."""
        return self.minor >= 36 or (self.minor == 35 and not self.is_simple)

    @property
    def uses_incomplete_pools(self) -> bool:
        """Devices of incomplete pools are allocated."""
        return self.minor <= 34

    @property
    def sees_own_slices_only(self) -> bool:
        """A pool is complete only if this node sees all its slices."""
        return self.minor <= 34

    @property
    def stops_at_invalid_pools(self) -> bool:
        """A search that reaches an invalid pool ends with an error, even if other devices fit."""
        return self.minor <= 34

    @property
    def all_forgets_alternative(self) -> bool:
        """After the first device of an alternative in mode All, the search continues with the first
        alternative."""
        return self.minor <= 35

    @property
    def second_all_is_first(self) -> bool:
        """The second of two alternatives in mode All uses the devices of the first."""
        return self.minor <= 35

    @property
    def repeats_within_request(self) -> bool:
        """One request may get the same shared device several times."""
        return self.minor <= 35 and self.consumable_capacity


def scheduler_version(version: str, features: Iterable[str] | None = None) -> SchedulerVersion:
    """kube-scheduler ``version`` (``1.36``) with these enabled feature gates.

    None: the gates that are on by default. For an unsupported version, the nearest supported one
    is used.

    Raises:
        InvalidInputError: ``version`` is invalid, or a feature is not supported.
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
            f"feature {unknown[0]!r} does not affect what dray decides: expected some of "
            f"{', '.join(sorted(KNOWN))}"
        )
    return SchedulerVersion(minor, stated)


def version_for_pod(
    pod: Pod, *, list_attributes: bool, binding_conditions: bool
) -> SchedulerVersion:
    """The version that decides a pod: the newest one, because older ones only differ by bugs.
    Fields that the API server drops are in no slice and no claim.

    ``binding_conditions``: whether dray waits for binding conditions, if it binds the pod.
    """
    waits = binding_conditions or pod.binder != names.OWNER_DRAY
    return _newest_version(waits, list_attributes)


@cache
def _newest_version(waits: bool, list_attributes: bool) -> SchedulerVersion:
    features = scheduler_version(NEWEST).features
    if list_attributes:
        features |= {LIST_ATTRIBUTES}
    return scheduler_version(NEWEST, features if waits else features - {DEVICE_BINDING})
