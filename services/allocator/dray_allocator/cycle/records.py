"""Records as this replica writes them: every one says what its writer had seen."""

from typing import Any, TypedDict

from dray.api.pods import Pod
from dray.messages.decisions import (
    Checkpoint,
    Decided,
    NodeLeft,
    PodDecision,
    Release,
    Released,
    Waiting,
)
from dray.reasons import Reason
from dray_allocator.state.decision_log import Stage
from dray_allocator.state.domain import SchedulingDomain
from dray_allocator.state.state import AllocatorState


class _Head(TypedDict):
    domain: str
    epoch: int
    writer: str
    facts_sequence: int
    now_unix_s: float
    settings: dict[str, Any]


def _head(state: AllocatorState, domain: SchedulingDomain) -> _Head:
    return _Head(
        domain=domain.name,
        epoch=domain.epoch,
        writer=state.rules.writer,
        facts_sequence=state.reached(domain.name),
        now_unix_s=state.facts.now_unix_s,
        settings=state.rules.changed(),
    )


def decided(
    state: AllocatorState, domain: SchedulingDomain, pods: tuple[PodDecision, ...]
) -> Decided:
    """Devices were chosen, under the policy that the facts show."""
    version = state.facts.placement(domain.name)[1]
    learned = domain.learned
    return Decided(
        **_head(state, domain),
        policy_version=version,
        pods=pods,
        learned=domain.unwritten,
        learned_version=learned.version if learned is not None else 0,
    )


def waiting(
    state: AllocatorState, domain: SchedulingDomain, pod: Pod, reasons: tuple[Reason, ...]
) -> Waiting:
    """Why the pod waits now."""
    return Waiting(
        **_head(state, domain),
        pod_uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        reasons=reasons,
        request_id=pod.request_id,
        traceparent=pod.traceparent,
    )


def released(
    state: AllocatorState, domain: SchedulingDomain, releases: tuple[Release, ...]
) -> Released:
    """Reservations that ended."""
    return Released(**_head(state, domain), releases=releases)


def node_left(
    state: AllocatorState, domain: SchedulingDomain, node: str, revision: int
) -> NodeLeft:
    """Nothing is in flight on a node that the fact of ``revision`` shows outside."""
    return NodeLeft(**_head(state, domain), node=node, node_revision=revision)


def checkpoint(state: AllocatorState, domain: SchedulingDomain) -> Checkpoint:
    """What a reader that starts here must know: what is held, and exclusions."""
    log = domain.current
    held = [r.pod_uid for r in log.claims.values() if r.stage is Stage.HELD]
    pods = dict.fromkeys([*held, *(uid for uid in log.pods if state.assumed_pods.has(uid))])
    return Checkpoint(
        **_head(state, domain),
        in_flight=tuple(log.pods[uid] for uid in pods if uid in log.pods),
        waiting=tuple(uid for uid in log.waiting if uid in state.facts.pods),
        excluded={uid: tuple(nodes) for uid, nodes in log.excluded.items()},
        learned=log.learned,
    )
