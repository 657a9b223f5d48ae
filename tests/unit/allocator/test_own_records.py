"""What this replica wrote need not be decoded when it is read back; what differs is."""

import pytest

from dray.messages.base import Delivered, UndecodableMessageError
from dray.messages.decisions import NodeLeft, encode_record, log_stream
from dray_allocator.service.decision_logs import OwnRecords


def record(node: str = "n1") -> NodeLeft:
    return NodeLeft(
        domain="pool",
        epoch=1,
        writer="one",
        facts_sequence=1,
        now_unix_s=1.0,
        node=node,
        node_revision=1,
    )


def delivered(sequence: int, payload: bytes) -> Delivered:
    return Delivered("subject", payload, {}, log_stream("pool", 1), sequence, 1.0)


@pytest.fixture
def own() -> OwnRecords:
    """Of a replica that appended one record, of which it expects to be the second."""
    records = OwnRecords()
    records.written(2, encode_record(WRITTEN), WRITTEN)
    return records


WRITTEN = record()


def test_an_own_record_comes_back_as_it_was_written(own):
    assert own.record_of("pool", 1, delivered(2, encode_record(WRITTEN))) is WRITTEN


def test_a_record_of_somebody_else_in_its_place_is_decoded(own):
    other = record("n2")
    assert own.record_of("pool", 1, delivered(2, encode_record(other))) == other


@pytest.mark.parametrize(("epoch", "sequence"), [(1, 3), (2, 2)])
def test_the_same_words_elsewhere_are_another_record(own, epoch, sequence):
    read = own.record_of("pool", epoch, delivered(sequence, encode_record(WRITTEN)))
    assert read == WRITTEN
    assert read is not WRITTEN


def test_a_log_that_is_read_no_more_is_forgotten(own):
    own.forget("pool")
    assert own.record_of("pool", 1, delivered(2, encode_record(WRITTEN))) is not WRITTEN


def test_what_is_not_a_record_is_refused(own):
    with pytest.raises(UndecodableMessageError, match="record 2 of DRAY_DECISIONS_pool_1"):
        own.record_of("pool", 1, delivered(2, b"{}"))
