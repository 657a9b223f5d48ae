"""Applies events to the cache and evaluates rules; records both in the journal (``DRAY_RECORD``).

A rule carries every input besides the cache, so the journal alone determines each answer. Nothing
here awaits, so the journal's lines have one order.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

import msgspec

from dray.api.claims import GivenUp
from dray.kube.ports import Changed, Deleted, Listed, Object, Resource, Transform, WatchEvent
from dray.messages.base import Message, subject_of
from dray.recording.journal import Notes, UnknownEventError
from dray.recording.questions import RuleInput, name_of
from dray.recording.redaction import redacted
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.cache.resources import WATCHED

A = TypeVar("A")
_GIVEN_UP: Final = "given-up"
_RECORDED_NAMES: Final = {"BindPod": "Bind", "Execution": "Order", "LateAllocation": "LateSale"}
"""Names in journals that differ from the names of classes."""
_RESOURCES = {resource.plural: resource for resource in WATCHED}


class RecordedRule(RuleInput, Generic[A], frozen=True, kw_only=True):
    """A rule whose inputs and answer are recorded: its fields are all inputs besides the cache."""

    @abstractmethod
    def answer(self, cache: ObjectCache) -> A:
        """The rule's answer. Pure."""

    def polled(self) -> str:
        """A key for rules that are evaluated periodically, else empty: for each key, the journal
        keeps only answers that differ from the one before."""
        return ""


class RuleRecorder:
    """A cache, the events that change it, and the rules that read it."""

    def __init__(self, cache: ObjectCache, notes: Notes | None = None) -> None:
        self.cache = cache
        self._notes = notes

    def transform(self, resource: Resource) -> Transform | None:
        """What converts listed objects for ``apply_list`` and ``apply_listed_response``; None: the
        journal needs the objects themselves."""
        return self.cache.transform(resource) if self._notes is None else None

    def apply(self, resource: Resource, event: WatchEvent) -> None:
        """Apply a watch event; a list in one step."""
        if self._notes is not None and resource.plural in _RESOURCES:
            self._notes.consumed(*_recorded_event(resource, event))
        self.cache.apply(resource, event)

    def apply_list(self, resource: Resource, listed: Listed) -> Iterator[None]:
        """Apply a list in steps; its objects are as ``transform`` makes them."""
        if self._notes is None:
            yield from self.cache.apply_list(resource, listed)
        else:
            self.apply(resource, listed)

    def apply_missing(self, resource: Resource, known: Object) -> None:
        """Apply that a read has not found an object."""
        if self._notes is not None and resource.plural in _RESOURCES:
            about, data = _recorded_event(resource, Deleted(known))
            self._notes.consumed(about, data | {"is_watched": False})
        self.cache.apply_missing(resource, known)

    def apply_response(self, resource: Resource, obj: Object) -> None:
        """Apply the response to an own write or read."""
        if self._notes is not None and resource.plural in _RESOURCES:
            data = {"resource": resource.plural, "objects": [redacted(resource.plural, obj)]}
            self._notes.consumed("answered", data)
        self.cache.apply_response(resource, obj)

    def apply_listed_response(self, resource: Resource, one: Any) -> None:
        """Apply an object of a list that is not the watch's own, as ``transform`` makes it."""
        if self._notes is None:
            self.cache.apply_listed_response(resource, one)
        else:
            self.apply_response(resource, one)

    def give_up(self, claim_uid: str, record: GivenUp | None) -> None:
        """Record that attempts of a claim are given up although the claim can't be written."""
        if self._notes is not None:
            self._notes.consumed(_GIVEN_UP, {"claim_uid": claim_uid, "given_up": record})
        self.cache.give_up(claim_uid, record)

    def evaluate(self, rule: RecordedRule[A]) -> A:
        """The rule's answer."""
        answer = rule.answer(self.cache)
        if self._notes is not None:
            about = name_of(type(rule))
            self._notes.decided(about, rule, recorded_answer(answer), polled=rule.polled())
        return answer


def _recorded_event(resource: Resource, event: WatchEvent) -> tuple[str, dict[str, Any]]:
    """A watch event in the journal's form."""
    plural = resource.plural
    match event:
        case Listed(objects, revision):
            kept = [redacted(plural, obj) for obj in objects]
            data = {"resource": plural, "objects": kept, "revision": revision}
            return "listed", data if event.is_whole else data | {"is_whole": False}
        case Changed(obj):
            return "changed", {"resource": plural, "objects": [redacted(plural, obj)]}
        case Deleted(obj):
            return "deleted", {"resource": plural, "objects": [redacted(plural, obj)]}


def apply_recorded_event(cache: ObjectCache, about: str, data: dict[str, Any]) -> None:
    """Apply what ``_recorded_event`` returned. Raises UnknownEventError for any other event."""
    if about == _GIVEN_UP:
        record = msgspec.convert(data["given_up"], GivenUp | None)
        cache.give_up(data["claim_uid"], record)
        return
    if (resource := _RESOURCES.get(data["resource"])) is None:
        raise UnknownEventError(data["resource"])
    objects = data["objects"]
    match about:
        case "listed":
            is_whole = data.get("is_whole", True)
            cache.apply(resource, Listed(tuple(objects), data["revision"], is_whole))
        case "changed":
            cache.apply(resource, Changed(objects[0]))
        case "deleted" if not data.get("is_watched", True):
            cache.apply_missing(resource, objects[0])
        case "deleted":
            cache.apply(resource, Deleted(objects[0]))
        case "answered":
            cache.apply_response(resource, objects[0])
        case _:
            raise UnknownEventError(about)


def recorded_answer(answer: Any) -> Any:
    """An answer in the journal's form: structs by the name of their class."""
    if isinstance(answer, Message):
        return {"subject": subject_of(answer), "payload": answer}
    if isinstance(answer, tuple | list):
        return [recorded_answer(one) for one in answer]
    if answer is None or isinstance(answer, bool | int | float | str | dict):
        return answer
    name = type(answer).__name__
    return {_RECORDED_NAMES.get(name, name): answer}
