"""The webhook's view of the cluster: pools, policies, templates, classes, server features."""

import re
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dray.api.devices import DeviceClass
from dray.api.groups import GroupQueue
from dray.api.names import OWNER_DRAY
from dray.api.pods import Policy, Pool
from dray.cel.environment import Environment, Mode, environment_of_server
from dray.messages.facts import (
    ClusterObserved,
    DeviceClassObserved,
    Fact,
    PolicyObserved,
    PoolObserved,
    PriorityClassObserved,
    QueueObserved,
    Synced,
    TemplateObserved,
)
from dray.messages.rpc import Lookup, LookupReply, Overlap
from dray.reasons import name_list

READ_FACTS: tuple[type[Fact], ...] = (
    PoolObserved,
    PolicyObserved,
    TemplateObserved,
    QueueObserved,
    PriorityClassObserved,
    DeviceClassObserved,
    ClusterObserved,
    Synced,
)
"""The facts that a view is built from."""

DEFAULT_POOL = Lookup(kind="pool", name="")
"""Asks for the default pool, whatever its name is."""

K = TypeVar("K")
V = TypeVar("V")
_MINOR = re.compile(r"v?(\d+)\.(\d+)")


class Overlay(MutableMapping[K, V]):
    """A map with changes that leave the map itself as it is. Its creation costs the same for maps
    of any size."""

    def __init__(self, of: Mapping[K, V]) -> None:
        self._of = of
        self._changed: dict[K, V | None] = {}
        """None: removed."""

    def __getitem__(self, key: K) -> V:
        if key not in self._changed:
            return self._of[key]
        if (value := self._changed[key]) is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self._changed[key] = value

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._changed[key] = None

    def __iter__(self) -> Iterator[K]:
        yield from (key for key in self._of if key not in self._changed)
        yield from (key for key, value in self._changed.items() if value is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(slots=True)
class View:
    """The state from :data:`READ_FACTS`, and the look-ups of the current call."""

    pools: MutableMapping[str, Pool] = field(default_factory=dict)
    default_pools: MutableMapping[str, Pool] = field(default_factory=dict)
    """Those of ``pools`` that are marked as the default."""
    policies: MutableMapping[str, Policy] = field(default_factory=dict)
    templates: MutableMapping[tuple[str, str], TemplateObserved] = field(default_factory=dict)
    queues: MutableMapping[str, GroupQueue] = field(default_factory=dict)
    priority_classes: dict[str, PriorityClassObserved] = field(default_factory=dict)
    classes: dict[str, DeviceClass] = field(default_factory=dict)
    cluster: ClusterObserved = field(default_factory=lambda: ClusterObserved(revision=0))
    synced: bool = False
    """Whether all facts up to the first ``Synced`` have been applied."""
    position: int = 0
    """Sequence of the last fact applied."""
    caught_up: bool = False
    """Whether no further fact was pending after that fact."""
    asked: frozenset[Lookup] = frozenset()
    """What was looked up already: an answer that depends on it is final."""
    unanswered: Mapping[Lookup, str] = field(default_factory=dict)
    """Why a look-up has no answer."""
    overlaps: Mapping[Lookup, Overlap] = field(default_factory=dict)
    """The nodes that other pools have, by look-up."""
    queue_names: Mapping[Lookup, str] = field(default_factory=dict)
    """The queues that namespaces name, by look-up."""
    group_resources: Mapping[Lookup, tuple[str, ...]] = field(default_factory=dict)
    """The resources in ``minResources`` of Volcano PodGroups, by look-up."""
    uses: Mapping[Lookup, int] = field(default_factory=dict)
    """How many pods hold devices of a pool, by look-up."""

    def apply(self, fact: Fact) -> None:
        """Apply one fact; later facts of an object replace earlier ones."""
        match fact:
            case PoolObserved(pool=pool):
                self._put_pool(pool.name, None if fact.deleted else pool)
            case PolicyObserved(policy=policy):
                _put(self.policies, policy.name, None if fact.deleted else policy)
            case TemplateObserved():
                key = (fact.namespace, fact.name)
                _put(self.templates, key, None if fact.deleted else fact)
            case QueueObserved(queue=queue):
                _put(self.queues, queue.name, None if fact.deleted else queue)
            case PriorityClassObserved():
                _put(self.priority_classes, fact.name, None if fact.deleted else fact)
            case DeviceClassObserved(device_class=known):
                _put(self.classes, known.name, None if fact.deleted else known)
            case ClusterObserved():
                self.cluster = fact
            case Synced():
                self.synced = True

    def with_answers(self, answers: Mapping[Lookup, LookupReply]) -> "View":
        """A copy with the look-ups of one call; this view does not change."""
        view = replace(
            self,
            pools=Overlay(self.pools),
            default_pools=Overlay(self.default_pools),
            policies=Overlay(self.policies),
            templates=Overlay(self.templates),
            asked=self.asked | answers.keys(),
            unanswered={
                **self.unanswered,
                **{lookup: reply.error for lookup, reply in answers.items() if reply.error},
            },
            uses={
                lookup: reply.used_by
                for lookup, reply in answers.items()
                if reply.used_by is not None
            },
            queues=Overlay(self.queues),
            queue_names={lookup: reply.queue_name for lookup, reply in answers.items()},
            group_resources={lookup: reply.group_resources for lookup, reply in answers.items()},
            overlaps={lookup: reply.overlap for lookup, reply in answers.items() if reply.overlap},
        )
        for lookup, reply in answers.items():
            if not reply.error:
                view._apply_reply(lookup, reply)
        return view

    def _apply_reply(self, lookup: Lookup, reply: LookupReply) -> None:
        if lookup.kind in ("overlap", "use", "namespace", "group"):
            return
        if lookup == DEFAULT_POOL:
            if reply.pool is not None:
                self._put_pool(reply.pool.name, reply.pool)
        elif lookup.kind == "pool":
            self._put_pool(lookup.name, reply.pool)
        elif lookup.kind == "queue":
            _put(self.queues, lookup.name, reply.queue)
        elif lookup.kind == "policy":
            _put(self.policies, lookup.name, reply.policy)
        else:
            _put(self.templates, (lookup.namespace, lookup.name), reply.template)

    def _put_pool(self, name: str, pool: Pool | None) -> None:
        _put(self.pools, name, pool)
        _put(self.default_pools, name, pool if pool is not None and pool.default else None)

    def language(self, mode: Mode) -> Environment:
        """The CEL environment of the server's selectors."""
        return environment_of_server(
            self.cluster.version,
            mode,
            consumable_capacity=self.cluster.consumable_capacity,
            list_attributes=self.cluster.list_attributes,
        )

    def pools_of_dray(self) -> str:
        """The names of the GPUPools that dray owns, quoted; empty if there are none."""
        names = sorted(pool.name for pool in self.pools.values() if pool.owner == OWNER_DRAY)
        return name_list([f'"{name}"' for name in names])

    @property
    def counts_shareable_devices(self) -> bool:
        """Whether ``count: N`` never allocates a shareable device twice.

        True from 1.36 on, and if devices can't be shared. An unparsable version counts as new.
        """
        version = _MINOR.match(self.cluster.version)
        new = version is None or (int(version[1]), int(version[2])) >= (1, 36)
        return new or not self.cluster.consumable_capacity


def _put(known: MutableMapping[K, V], key: K, value: V | None) -> None:
    if value is None:
        known.pop(key, None)
    else:
        known[key] = value
