"""Recorded questions asked again, of a picture that folded the recorded events. Pure."""

from typing import Any

import msgspec

from dray.recording.questions import by_name
from dray_claim_controller.deciding.executing import (
    Cleared,
    Halfway,
    MayCommit,
    MayTakeBack,
    MayVoid,
    NextStep,
    Refused,
    StartedHalfway,
    Untold,
)
from dray_claim_controller.deciding.known import KnownPicture, restored
from dray_claim_controller.deciding.observing import FACT_OF, PoolStatus, Publish, Taints
from dray_claim_controller.deciding.opening import MustBegin, NextEpoch
from dray_claim_controller.deciding.owning import CameLate, WhoIsStranded
from dray_claim_controller.deciding.seam import Question, fold, told
from dray_claim_controller.deciding.templating import Affected, Garbage, Template
from dray_claim_controller.observe.picture import Picture

QUESTIONS: dict[str, type[Question[Any]]] = by_name(
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
    Untold,
    WhoIsStranded,
)
"""By the name that the journal has."""


class Again:
    """One life of a claim-controller, taken from its journal."""

    def __init__(self) -> None:
        self._picture = Picture()

    def know(self, data: Any) -> None:
        """All that was consumed before, in one piece. Raises msgspec.ValidationError."""
        self._picture = restored(msgspec.convert(data, KnownPicture))

    def consume(self, about: str, data: Any) -> None:
        """Fold an event. Raises UnknownEventError: this version does not write such."""
        fold(self._picture, about, data)
        self._picture.take_dirty()

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
        return told(question.answer(self._picture))
