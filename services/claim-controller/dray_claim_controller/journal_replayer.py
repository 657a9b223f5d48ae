"""Evaluates recorded rules again, for a cache with the recorded events. Pure."""

from typing import Any

import msgspec

from dray.recording.questions import by_name
from dray_claim_controller.accounting_claims.decisions import AccountingClaim
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import (
    RecordedRule,
    apply_recorded_event,
    recorded_answer,
)
from dray_claim_controller.cache.snapshot import CacheSnapshot, restore_snapshot
from dray_claim_controller.execution.decisions.adoption import (
    GroupRollbacks,
    UnfinishedPlacements,
    UnfinishedPods,
)
from dray_claim_controller.execution.decisions.in_flight_allocations import CommitCheck
from dray_claim_controller.execution.decisions.joint_step import JointStep
from dray_claim_controller.execution.decisions.next_step import NextStep
from dray_claim_controller.execution.decisions.rollback_rules import (
    PodVoidAnnotation,
    RollbackCheck,
    VoidCheck,
)
from dray_claim_controller.execution.decisions.unschedulable import Cleared, Refused
from dray_claim_controller.facts.decisions import FACT_OF, Publish
from dray_claim_controller.garbage.decisions import Garbage
from dray_claim_controller.groups.decisions.rules import (
    DueForGroup,
    GroupStatus,
    MissingGroups,
    QueueStatuses,
)
from dray_claim_controller.logs.decisions.rules import NextEpoch, ReopenCheck
from dray_claim_controller.owners.decisions import LateAllocations, StrandedPods
from dray_claim_controller.pools.decisions.rules import PoolStatus, Taints
from dray_claim_controller.pools.decisions.usage import PolicyFinalizer, PoolRelease
from dray_claim_controller.preparation.decisions import AwaitsPreparation
from dray_claim_controller.templates.decisions import Affected, Template

QUESTIONS: dict[str, type[RecordedRule[Any]]] = by_name(
    Affected,
    AwaitsPreparation,
    LateAllocations,
    Cleared,
    DueForGroup,
    AccountingClaim,
    Garbage,
    GroupStatus,
    UnfinishedPlacements,
    GroupRollbacks,
    JointStep,
    CommitCheck,
    RollbackCheck,
    VoidCheck,
    MissingGroups,
    ReopenCheck,
    NextEpoch,
    NextStep,
    PolicyFinalizer,
    PoolRelease,
    PoolStatus,
    Publish,
    QueueStatuses,
    Refused,
    UnfinishedPods,
    Taints,
    Template,
    PodVoidAnnotation,
    StrandedPods,
)
"""Recorded rules by their name in the journal."""


class JournalReplayer:
    """Replays the journal of one claim-controller process."""

    def __init__(self) -> None:
        self._cache = ObjectCache()

    def know(self, data: Any) -> None:
        """Restore a snapshot. Raises msgspec.ValidationError."""
        self._cache = restore_snapshot(msgspec.convert(data, CacheSnapshot))

    def consume(self, about: str, data: Any) -> None:
        """Apply an event. Raises UnknownEventError for an event of another version."""
        apply_recorded_event(self._cache, about, data)
        self._cache.take_dirty()

    def decide(self, about: str, data: Any) -> Any:
        """The answer that this code gives.

        Raises KeyError for a question that it does not know, msgspec.ValidationError if the
        question does not fit.
        """
        rule = msgspec.convert(data, QUESTIONS[about])
        if isinstance(rule, Publish):
            kind = FACT_OF[rule.key.kind] | None
            before = msgspec.convert(rule.before, kind)
            doubted = tuple(msgspec.convert(one, kind) for one in rule.doubted)
            rule = msgspec.structs.replace(rule, before=before, doubted=doubted)
        return recorded_answer(rule.answer(self._cache))
