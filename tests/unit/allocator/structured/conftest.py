"""A cluster by hand: one node, what drivers publish, what claims hold and ask for."""

from dataclasses import dataclass, field, replace

import pytest

from dray.api.claims import AllocatedDevice, Claim, ClaimSpec, Constraint, DeviceRequest
from dray.api.devices import (
    Capacity,
    CounterSet,
    Device,
    DeviceClass,
    DeviceCounterConsumption,
    DeviceId,
    RequestPolicy,
    ResourceSlice,
)
from dray.api.nodes import (
    NodeSelection,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from dray.api.pods import Node
from dray_allocator.devices.allocate import Problem, allocate
from dray_allocator.devices.budget import SearchBudget
from dray_allocator.devices.devices_in_use import devices_in_use
from dray_allocator.devices.versions import scheduler_version

CLASS = "any"


@dataclass
class Cluster:
    """What there is; ``fit`` and ``allocate`` ask for claims on ``node``."""

    version: str = "1.36"
    features: list[str] | None = None
    node: Node = field(
        default_factory=lambda: Node("here", "uid-here", labels={"zone": "a", "size": "3"})
    )
    slices: list[ResourceSlice] = field(default_factory=list)
    classes: list[DeviceClass] = field(default_factory=lambda: [DeviceClass(CLASS)])
    holdings: list[AllocatedDevice] = field(default_factory=list)

    def publish(self, *devices, name="", driver="d.x", pool="p", node="here", **fields):
        """A slice of ``devices`` on ``node``; the only one of its pool by default."""
        nodes = fields.pop("reach", NodeSelection(node))
        whole = {
            "generation": 0,
            "slice_count": 1,
            "node": nodes.node,
            "devices": devices,
            **fields,
        }
        if not nodes.node:
            whole["nodes"] = nodes
        name = name or f"slice-{len(self.slices)}"
        self.slices.append(ResourceSlice(name, f"uid-{name}", driver, pool, **whole | fields))
        return self

    def hold(self, device, *, driver="d.x", pool="p", **fields):
        """A device that another claim holds."""
        self.holdings.append(AllocatedDevice("r", DeviceId(driver, pool, device), **fields))
        return self

    def allocate(self, *claims, most=100_000):
        """The results of ``claims``, or None if they don't fit."""
        scheduler = scheduler_version(self.version, self.features)
        usage = devices_in_use(self.holdings, scheduler)
        problem = Problem(self.node, self.slices, self.classes, usage, claims)
        return allocate(problem, scheduler, budget=SearchBudget(most))

    def fit(self, *claims):
        """Which device each request got, per claim, or None if they don't fit."""
        found = self.allocate(*claims)
        return found and [
            [f"{device.request}={device.id.device}" for device in one.devices] for one in found
        ]

    def on(self, version, *, without=""):
        """The same cluster on another version, or with a gate off."""
        scheduler = scheduler_version(version)
        return replace(self, version=version, features=sorted(scheduler.features - {without}))

    @staticmethod
    def device(name, *, shared=False, **fields):
        """A device; capacities as text, or as a pair of text and policy."""
        capacity = {
            key: Capacity(*value) if isinstance(value, tuple) else Capacity(value)
            for key, value in fields.pop("capacity", {}).items()
        }
        return Device(name, capacity=capacity, allow_multiple_allocations=shared, **fields)

    @staticmethod
    def request(name="r", *, first_available=(), **fields):
        """A request for one device, or for the first available of alternatives."""
        if first_available:
            return DeviceRequest(name, "", first_available=tuple(first_available))
        return DeviceRequest(name, fields.pop("of", CLASS), **fields)

    @staticmethod
    def alternative(name, **fields):
        """One of several alternatives."""
        return DeviceRequest(name, fields.pop("of", CLASS), **fields)

    @staticmethod
    def claim(*requests, name="claim", match="", distinct="", over=(), config=()):
        """A claim, with at most one constraint."""
        constraint = Constraint(tuple(over), match or None, distinct or None)
        constraints = (constraint,) if match or distinct else ()
        spec = ClaimSpec(tuple(requests), constraints, tuple(config))
        return Claim(f"uid-{name}", "ns", name, 1, "", spec)

    @staticmethod
    def policy(**fields):
        """A request policy."""
        return RequestPolicy(**fields)

    @staticmethod
    def counters(name, **amounts):
        """A counter set."""
        return CounterSet(name, amounts)

    @staticmethod
    def uses(name, **amounts):
        """What a device takes of a counter set."""
        return (DeviceCounterConsumption(name, amounts),)

    @staticmethod
    def nodes_with(key, *values, operator="In", fields=()):
        """A selection by one requirement about labels."""
        requirement = NodeSelectorRequirement(key, operator, values)
        term = NodeSelectorTerm((requirement,), tuple(fields))
        return NodeSelection(selector=NodeSelector((term,)))


@pytest.fixture
def cluster():
    """A cluster of 1.36 with one class and nothing published."""
    return Cluster()
