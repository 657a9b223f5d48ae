"""Facts of configuration: classes, taint rules, pools, policies, the server's features."""

from typing import TypeVar

from dray.cel.environment import Environment, Mode, environment_of_server
from dray.messages.facts import (
    ClusterObserved,
    DeviceClassObserved,
    Fact,
    PolicyObserved,
    PoolObserved,
    TaintRuleObserved,
)
from dray_allocator.state.state import AllocatorState

T = TypeVar("T")


def configure(state: AllocatorState, fact: Fact) -> None:
    """Apply a fact of configuration."""
    facts = state.facts
    match fact:
        case DeviceClassObserved(device_class=device_class):
            _keep(facts.classes, device_class.name, device_class, fact.deleted)
            facts.given = frozenset(
                name for one in facts.classes.values() for name in one.stands_for
            )
            state.published.clear_eligible()
            state.tables.forget_indexes()
            state.patterns.forget()
        case TaintRuleObserved(rule=rule):
            _keep(facts.taint_rules, rule.name, rule, fact.deleted)
            for node in state.published.taint(tuple(facts.taint_rules.values())):
                if node:
                    state.tables.node_changed(node, cards=True)
                else:
                    state.shared_version += 1
        case ClusterObserved():
            facts.cluster = fact
            if not state.selectors.set_environment(_stored_language(fact)):
                return
            state.published.clear_eligible()
            state.tables.forget_indexes()
        case PoolObserved(pool=pool):
            _keep(facts.pools, pool.name, pool, fact.deleted)
            state.patterns.forget()
            for pod_uid, pod in facts.pods.items():
                if pod.pool == pool.name:
                    state.recompute_pod(pod_uid)
        case PolicyObserved(policy=policy):
            _keep(facts.policies, policy.name, policy, fact.deleted)
            state.patterns.forget()
        case _:
            return
    state.capacity_changed_everywhere()


def _stored_language(cluster: ClusterObserved) -> Environment:
    """The CEL environment of the selectors of stored claims and classes."""
    return environment_of_server(
        cluster.version,
        Mode.STORED,
        consumable_capacity=cluster.consumable_capacity,
        list_attributes=cluster.list_attributes,
    )


def _keep(known: dict[str, T], name: str, value: T, deleted: bool) -> None:
    if deleted:
        known.pop(name, None)
    else:
        known[name] = value
