"""What the webhook knows of the cluster: pools, policies, templates, classes, abilities."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dray.cel.environment import Environment, Mode, environment_of_server
from dray.domain.devices import DeviceClass
from dray.domain.pods import Policy, Pool
from dray.messages.facts import (
    ClusterObserved,
    DeviceClassObserved,
    Fact,
    PolicyObserved,
    PoolObserved,
    Synced,
    TemplateObserved,
)
from dray.messages.rpc import Lookup, LookupReply, Overlap

READ_FACTS: tuple[type[Fact], ...] = (
    PoolObserved,
    PolicyObserved,
    TemplateObserved,
    DeviceClassObserved,
    ClusterObserved,
    Synced,
)
"""The facts a view is folded from."""

DEFAULT_POOL = Lookup(kind="pool", name="")
"""Stands for "the one default pool": it can't be asked for by name, only waited for."""

K = TypeVar("K")
V = TypeVar("V")
_MINOR = re.compile(r"v?(\d+)\.(\d+)")


@dataclass(slots=True)
class View:
    """The fold of :data:`READ_FACTS`, and what was looked up for the call at hand."""

    pools: dict[str, Pool] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    templates: dict[tuple[str, str], TemplateObserved] = field(default_factory=dict)
    classes: dict[str, DeviceClass] = field(default_factory=dict)
    cluster: ClusterObserved = field(default_factory=lambda: ClusterObserved(revision=0))
    synced: bool = False
    """Whether everything that existed once has been folded."""
    position: int = 0
    """Sequence of the last fact folded."""
    caught_up: bool = False
    """Whether no further fact was waiting behind it."""
    asked: frozenset[Lookup] = frozenset()
    """What was looked up already: a denial that rests on it is final."""
    unanswered: Mapping[Lookup, str] = field(default_factory=dict)
    """Why a look-up brought no answer."""
    overlaps: Mapping[Lookup, Overlap] = field(default_factory=dict)
    """Which nodes a pool does not get."""

    def apply(self, fact: Fact) -> None:
        """Fold one fact; later facts of an object replace earlier ones."""
        match fact:
            case PoolObserved(pool=pool):
                _put(self.pools, pool.name, None if fact.deleted else pool)
            case PolicyObserved(policy=policy):
                _put(self.policies, policy.name, None if fact.deleted else policy)
            case TemplateObserved():
                key = (fact.namespace, fact.name)
                _put(self.templates, key, None if fact.deleted else fact)
            case DeviceClassObserved(device_class=known):
                _put(self.classes, known.name, None if fact.deleted else known)
            case ClusterObserved():
                self.cluster = fact
            case Synced():
                self.synced = True

    def with_answers(self, answers: Mapping[Lookup, LookupReply]) -> "View":
        """A copy that holds what was looked up for one call; this view is not changed."""
        view = replace(
            self,
            pools=dict(self.pools),
            policies=dict(self.policies),
            templates=dict(self.templates),
            asked=self.asked | answers.keys(),
            unanswered={
                **self.unanswered,
                **{lookup: reply.error for lookup, reply in answers.items() if reply.error},
            },
            overlaps={lookup: reply.overlap for lookup, reply in answers.items() if reply.overlap},
        )
        for lookup, reply in answers.items():
            if not reply.error:
                view._learn(lookup, reply)
        return view

    def _learn(self, lookup: Lookup, reply: LookupReply) -> None:
        if lookup == DEFAULT_POOL or lookup.kind == "overlap":
            return
        if lookup.kind == "pool":
            _put(self.pools, lookup.name, reply.pool)
        elif lookup.kind == "policy":
            _put(self.policies, lookup.name, reply.policy)
        else:
            _put(self.templates, (lookup.namespace, lookup.name), reply.template)

    def language(self, mode: Mode) -> Environment:
        """What the server reads in a selector."""
        return environment_of_server(
            self.cluster.version,
            mode,
            consumable_capacity=self.cluster.consumable_capacity,
            list_attributes=self.cluster.list_attributes,
        )

    @property
    def counts_shareable_devices(self) -> bool:
        """Whether ``count: N`` never takes one shareable device twice: 1.36 and later, or
        where devices can't be shared at all. A version that can't be read is taken as new."""
        version = _MINOR.match(self.cluster.version)
        new = version is None or (int(version[1]), int(version[2])) >= (1, 36)
        return new or not self.cluster.consumable_capacity


def _put(known: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        known.pop(key, None)
    else:
        known[key] = value
