"""A cluster by hand: one node, what drivers publish, what claims hold and ask for."""

from dataclasses import dataclass, field, replace

import pytest

from dray.api.claims import Constraint
from dray.api.devices import Capacity, DeviceClass, RequestPolicy
from dray.api.dra.asks import Ask, Claim, Holding, Request
from dray.api.dra.nodes import Node, NodeSelector, Reach, Requirement, Term
from dray.api.dra.slices import CounterSet, CounterUse, Device, Slice
from dray_allocator.devices.allocate import Problem, allocate
from dray_allocator.devices.budget import SearchBudget
from dray_allocator.devices.usage import usage_of
from dray_allocator.devices.versions import rules_for

CLASS = "any"


@dataclass
class Cluster:
    """What there is; ``fit`` and ``allocate`` ask for claims on ``node``."""

    version: str = "1.36"
    features: list[str] | None = None
    node: Node = field(default_factory=lambda: Node("here", {"zone": "a", "size": "3"}))
    slices: list[Slice] = field(default_factory=list)
    classes: list[DeviceClass] = field(default_factory=lambda: [DeviceClass(CLASS)])
    holdings: list[Holding] = field(default_factory=list)

    def publish(self, *devices, name="", driver="d.x", pool="p", node="here", **fields):
        """A slice of ``devices`` on ``node``; the only one of its pool by default."""
        reach = fields.pop("reach", Reach(node))
        name = name or f"slice-{len(self.slices)}"
        self.slices.append(Slice(name, driver, pool, devices=devices, reach=reach, **fields))
        return self

    def hold(self, device, *, driver="d.x", pool="p", **fields):
        """A device that another claim holds."""
        self.holdings.append(Holding(driver, pool, device, **fields))
        return self

    def allocate(self, *claims, most=100_000):
        """The results of ``claims``, or None where they don't fit."""
        rules = rules_for(self.version, self.features)
        usage = usage_of(self.holdings, rules)
        problem = Problem(self.node, self.slices, self.classes, usage, claims)
        return allocate(problem, rules, budget=SearchBudget(most))

    def fit(self, *claims):
        """Which device each request got, per claim, or None where they don't fit."""
        found = self.allocate(*claims)
        return found and [
            [f"{device.request}={device.id.device}" for device in one.devices] for one in found
        ]

    def on(self, version, *, without=""):
        """The same cluster on another version, or with a gate off."""
        rules = rules_for(version)
        return replace(self, version=version, features=sorted(rules.features - {without}))

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
            return Request(name, None, tuple(first_available))
        return Request(name, Ask(name, fields.pop("of", CLASS), **fields))

    @staticmethod
    def alternative(name, **fields):
        """One of several alternatives."""
        return Ask(name, fields.pop("of", CLASS), **fields)

    @staticmethod
    def claim(*requests, name="claim", match="", distinct="", over=(), config=()):
        """A claim, with at most one constraint."""
        constraint = Constraint(tuple(over), match or None, distinct or None)
        constraints = (constraint,) if match or distinct else ()
        return Claim("ns", name, f"uid-{name}", tuple(requests), constraints, tuple(config))

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
        return (CounterUse(name, amounts),)

    @staticmethod
    def nodes_with(key, *values, operator="In", fields=()):
        """A reach by one requirement about labels."""
        term = Term((Requirement(key, operator, values),), tuple(fields))
        return Reach(selector=NodeSelector((term,)))


@pytest.fixture
def cluster():
    """A cluster of 1.36 with one class and nothing published."""
    return Cluster()
