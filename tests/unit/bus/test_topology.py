"""The streams and who may do what: one table, complete and without overlap."""

import pytest

from dray.bus.memory_store import matches
from dray.bus.topology import ACCESS, LEASES_STREAM, STREAMS, log_spec
from dray.messages.base import Message, subject_prefix
from dray.messages.commands import COMMANDS, VoidClaim
from dray.messages.decisions import log_subject
from dray.messages.events import EVENTS, ClaimPrepared, PodRequested
from dray.messages.facts import FACTS, InventoryObserved
from dray.messages.rpc import DUMP_SUBJECT, QUESTIONS, Question


def subjects(message: type[Message]) -> tuple[str, str]:
    return subject_prefix(message), f"{subject_prefix(message)}.a.b"


@pytest.mark.parametrize("message", [*FACTS, *EVENTS, *COMMANDS])
def test_every_message_is_kept_by_one_stream(message: type[Message]) -> None:
    for subject in subjects(message):
        keepers = [
            spec.name
            for spec in STREAMS
            if any(matches(subject, pattern) for pattern in spec.subjects)
        ]
        assert len(keepers) == 1


def may_publish(role: str, subject: str) -> bool:
    (access,) = (access for access in ACCESS if access.role == role)
    return any(matches(subject, pattern) for pattern in access.publish)


@pytest.mark.parametrize("message", [*FACTS, *EVENTS, *COMMANDS])
def test_every_message_has_one_kind_of_writer(message: type[Message]) -> None:
    writers = [
        access.role
        for access in ACCESS
        if may_publish(access.role, f"{subject_prefix(message)}.a.b")
    ]
    expected = {
        # The claim-controller writes its tombstones.
        InventoryObserved: ["claim-controller", "node-agent"],
        ClaimPrepared: ["node-agent"],
        PodRequested: ["webhook"],
        VoidClaim: ["allocator"],
    }
    assert writers == expected.get(message, ["claim-controller"])


def test_decisions_are_written_by_allocators_and_opened_by_the_controller() -> None:
    subject = log_subject("pool", 3)
    assert [access.role for access in ACCESS if may_publish(access.role, subject)] == [
        "claim-controller",
        "allocator",
    ]
    assert [access.role for access in ACCESS if access.makes_streams] == ["claim-controller"]


def test_a_log_has_its_epoch_in_stream_and_subject() -> None:
    first, second = log_spec("my.pool", 1), log_spec("my.pool", 2)
    assert first.name != second.name
    assert set(first.subjects).isdisjoint(second.subjects)
    assert first.max_age_s is None
    assert not first.last_per_subject


def test_leases_have_a_stream_of_their_own() -> None:
    (leases,) = (spec for spec in STREAMS if spec.name == LEASES_STREAM)
    assert leases.last_per_subject
    assert leases.message_ttl


def test_readers_store_nothing_and_ask_one_question() -> None:
    (reader,) = (access for access in ACCESS if access.role == "reader")
    assert (reader.publish, reader.subscribe, reader.makes_streams) == ((DUMP_SUBJECT,), (), False)
    assert not any(matches(DUMP_SUBJECT, kept) for spec in STREAMS for kept in spec.subjects)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.name)
def test_a_question_may_be_asked_and_answered_by_those_who_are_said_to(question: Question) -> None:
    asked = question.asked.SUBJECT
    askers = [access.role for access in ACCESS if may_publish(access.role, asked)]
    assert askers == ["reader" if question.asks.startswith("dray ") else question.asks]
    answering = [access.role for access in ACCESS if asked in access.subscribe]
    assert answering == [question.answers.split(" (")[0]]
