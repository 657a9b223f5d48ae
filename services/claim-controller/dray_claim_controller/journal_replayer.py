"""Recorded questions asked again, of a picture that folded the recorded events. Pure."""

from typing import Any

import msgspec

from dray.recording.questions import by_name
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.rule_recorder import (
    RecordedRule,
    apply_recorded_event,
    recorded_answer,
)
from dray_claim_controller.cache.snapshot import CacheSnapshot, restore_snapshot
from dray_claim_controller.execution.adoption import Halfway, StartedHalfway
from dray_claim_controller.execution.decisions import NextStep
from dray_claim_controller.execution.in_flight_allocations import MayCommit
from dray_claim_controller.execution.rollback_decisions import (
    MayTakeBack,
    MayVoid,
    PodVoidAnnotation,
)
from dray_claim_controller.execution.unschedulable import Cleared, Refused
from dray_claim_controller.facts.decisions import FACT_OF, Publish
from dray_claim_controller.garbage.decisions import Garbage
from dray_claim_controller.logs.decisions import MustBegin, NextEpoch
from dray_claim_controller.owners.decisions import CameLate, StrandedPods
from dray_claim_controller.pools.decisions import PoolStatus, Taints
from dray_claim_controller.templates.decisions import Affected, Template

QUESTIONS: dict[str, type[RecordedRule[Any]]] = by_name(
    Affected,
    CameLate,
    Cleared,
    Garbage,
    Halfway,
    MayCommit,
    MayTakeBack,
    MayVoid,
    MustBegin,
    NextEpoch,
    NextStep,
    PoolStatus,
    Publish,
    Refused,
    StartedHalfway,
    Taints,
    Template,
    PodVoidAnnotation,
    StrandedPods,
)
"""By the name that the journal has."""


class JournalReplayer:
    """One life of a claim-controller, taken from its journal."""

    def __init__(self) -> None:
        self._cache = ObjectCache()

    def know(self, data: Any) -> None:
        """All that was consumed before, in one piece. Raises msgspec.ValidationError."""
        self._cache = restore_snapshot(msgspec.convert(data, CacheSnapshot))

    def consume(self, about: str, data: Any) -> None:
        """Fold an event. Raises UnknownEventError: this version does not write such."""
        apply_recorded_event(self._cache, about, data)
        self._cache.take_dirty()

    def decide(self, about: str, data: Any) -> Any:
        """The answer that this code gives.

        Raises KeyError for a question that it does not know, msgspec.ValidationError where the
        question does not fit.
        """
        question = msgspec.convert(data, QUESTIONS[about])
        if isinstance(question, Publish):
            kind = FACT_OF[question.key.kind] | None
            before = msgspec.convert(question.before, kind)
            doubted = tuple(msgspec.convert(one, kind) for one in question.doubted)
            question = msgspec.structs.replace(question, before=before, doubted=doubted)
        return recorded_answer(question.answer(self._cache))
