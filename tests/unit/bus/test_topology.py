"""The streams and who may do what: one table, complete and without overlap."""

import pytest

from dray.bus.memory_store import matches
from dray.bus.readings import refusal
from dray.bus.topology import (
    ACCESS,
    CLAIM_CONTROLLER,
    LEASES_STREAM,
    NODE,
    NODE_AGENT,
    STREAMS,
    access_of,
    api_rights,
    log_spec,
)
from dray.messages.base import Message, subject_prefix
from dray.messages.commands import COMMANDS, VoidClaim
from dray.messages.decisions import log_subject
from dray.messages.events import EVENTS, ClaimPrepared, PodRequested
from dray.messages.facts import FACTS, ClusterObserved
from dray.messages.rpc import QUESTIONS, Question, Reading
from dray.messages.usage import USAGE, GpusUsed
from tools.generate.message_readers import READERS, RECORD_WRITERS

ROLES_OF = {
    "dray": ("reader", "recorder"),
    "dray doctor": ("reader",),
    "dray explain": ("reader",),
}
VERB_ROLES = {
    "dray top": "reader",
    "dray gpus": "reader",
    "dray demo": CLAIM_CONTROLLER,  # as the administrator of its own stack
    "dray trace": "reader",
    "dray record": "recorder",
}


def stream_of(message: type[Message]) -> str:
    subject = f"{subject_prefix(message)}.a"
    (found,) = (
        spec.name for spec in STREAMS if any(matches(subject, pattern) for pattern in spec.subjects)
    )
    return found


def subjects(message: type[Message]) -> tuple[str, str]:
    return subject_prefix(message), f"{subject_prefix(message)}.a.b"


@pytest.mark.parametrize("message", [*FACTS, *EVENTS, *COMMANDS, *USAGE])
def test_every_message_is_kept_by_one_stream(message: type[Message]) -> None:
    for subject in subjects(message):
        owners = [
            spec.name
            for spec in STREAMS
            if any(matches(subject, pattern) for pattern in spec.subjects)
        ]
        assert len(owners) == 1


def may_publish(role: str, subject: str) -> bool:
    rights = access_of(role).for_node("*") if role == NODE_AGENT else access_of(role)
    return any(matches(subject, pattern) for pattern in rights.publish)


@pytest.mark.parametrize("message", [*FACTS, *EVENTS, *COMMANDS])
def test_every_message_has_one_kind_of_writer(message: type[Message]) -> None:
    writers = [
        access.role
        for access in ACCESS
        if may_publish(access.role, f"{subject_prefix(message)}.a.b")
    ]
    expected = {
        ClaimPrepared: ["node-agent"],
        PodRequested: ["webhook"],
        VoidClaim: ["allocator"],
        GpusUsed: ["node-agent"],
    }
    assert writers == expected.get(message, ["claim-controller"])


def test_decisions_are_written_by_allocators_and_opened_by_the_controller() -> None:
    subject = log_subject("pool", 3)
    assert [access.role for access in ACCESS if may_publish(access.role, subject)] == [
        "claim-controller",
        "allocator",
    ]
    assert [access.role for access in ACCESS if access.owns_streams] == ["claim-controller"]


def test_facts_have_one_writer() -> None:
    for fact in FACTS:
        subject = f"{subject_prefix(fact)}.a"
        writers = [access.role for access in ACCESS if may_publish(access.role, subject)]
        assert writers == ["claim-controller"]


@pytest.mark.parametrize("message", READERS)
def test_every_reader_of_a_message_may_read_it(message: type) -> None:
    is_record = message in RECORD_WRITERS
    stream = log_spec("p", 1).name if is_record else stream_of(message)
    subject = log_subject("p", 1) if is_record else f"{subject_prefix(message)}.n"
    for reader in READERS[message]:
        role = VERB_ROLES.get(reader, reader.split(" (")[0])
        if role == CLAIM_CONTROLLER:
            continue
        access = access_of(role)
        rights = access.for_node("n") if access.has_user_per_node else access
        refused = [
            refusal(rights, Reading(stream=stream, subjects=(one,)))
            for one in (subject, subject.removesuffix(".n"))
        ]
        assert None in refused, refused


def test_a_node_has_rights_in_its_own_name_alone() -> None:
    rights = access_of(NODE_AGENT).for_node("gpu.node-1")
    subjects = [*rights.publish, *(each for one in rights.reads for each in one.subjects)]
    shared = [subject for subject in subjects if "gpu_node-1" not in subject.split(".")]
    assert shared == [subject_prefix(ClusterObserved)]
    assert NODE not in " ".join(subjects)


def test_no_right_makes_a_consumer_or_changes_a_stream() -> None:
    for access in ACCESS:
        if not access.owns_streams:
            verbs = {right.rpartition(".")[0].split(".")[1] for right in api_rights(access)}
            assert verbs <= {"MSG", "INFO"}
            assert not [one for one in api_rights(access) if "ACK" in one or "DIRECT" in one]


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


@pytest.mark.parametrize("role", ["reader", "recorder"])
def test_readers_store_nothing(role: str) -> None:
    access = access_of(role)
    assert not access.answers
    for subject in access.publish:
        assert subject.startswith("dray.rpc.")
        assert not any(matches(subject, kept) for spec in STREAMS for kept in spec.subjects)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.name)
def test_a_request_may_be_sent_and_answered_by_the_documented_roles(question: Question) -> None:
    prefix = question.asked.SUBJECT.partition(".<")[0]
    askers = [
        access.role
        for access in ACCESS
        if any(f"{subject}.".startswith(f"{prefix}.") for subject in access.publish)
    ]
    stated = [role for one in question.asks.split(", ") for role in ROLES_OF.get(one, (one,))]
    assert sorted(askers) == sorted(stated)
    answering = [
        access.role
        for access in ACCESS
        if any(f"{subject}.".startswith(f"{prefix}.") for subject in access.answers)
    ]
    assert answering == [question.answers.split(" (")[0]]
