"""Subjects, ids and headers: derived from the type and the key, never typed by hand."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.claims import Claim, ClaimSpec
from dray.messages.base import (
    Delivered,
    Message,
    UndecodableMessageError,
    ce_type,
    decode,
    encode,
    message_id,
    subject_of,
    subject_prefix,
    token,
)
from dray.messages.commands import COMMANDS, VoidClaim
from dray.messages.decisions import Checkpoint, log_stream, log_subject
from dray.messages.events import EVENTS
from dray.messages.facts import FACTS, ClaimObserved, InventoryObserved, Synced, Tick


def claim(uid: str = "u", pool: str = "pool") -> Claim:
    return Claim(uid, "n", "c", 1, pool, ClaimSpec())


def test_a_subject_is_kind_name_version_and_ids() -> None:
    fact = ClaimObserved(revision=1, claim=claim("u", "my.pool"))
    assert subject_of(fact) == "dray.state.claim.v1.my_pool.u"
    assert subject_of(ClaimObserved(revision=1, claim=claim("u", ""))) == "dray.state.claim.v1.-.u"
    assert subject_of(Synced(revision=1, instance="i")) == "dray.state.synced.v1"
    assert subject_prefix(VoidClaim) == "dray.cmd.claim.void.v1"
    assert ce_type(VoidClaim) == "dev.dray.claim.void.v1"
    assert log_subject("my.pool", 2) == "dray.decision.my_pool.2"
    assert log_stream("my.pool", 2) == "DRAY_DECISIONS_my_pool_2"


def test_no_two_types_share_a_subject() -> None:
    prefixes = [subject_prefix(message) for message in (*FACTS, *EVENTS, *COMMANDS)]
    assert len(set(prefixes)) == len(prefixes)


dns_names = st.text(string.ascii_lowercase + string.digits + "-.", min_size=1, max_size=30)


@given(dns_names, dns_names)
def test_tokens_of_dns_names_are_single_and_distinct(first: str, second: str) -> None:
    assert "." not in token(first)
    assert (token(first) == token(second)) == (first == second)


def test_the_id_repeats_for_a_redelivery_and_not_for_a_return_to_an_old_state() -> None:
    def health(revision: int, *unhealthy: str) -> str:
        return message_id(
            InventoryObserved(revision=revision, node="n", driver="d", unhealthy=unhealthy)
        )

    assert health(1) == health(1)
    assert len({health(1), health(2, "g"), health(3)}) == 3


def test_a_tombstone_is_another_message_and_expires() -> None:
    seen = ClaimObserved(revision=5, claim=claim())
    gone = ClaimObserved(revision=5, deleted=True, claim=claim())
    assert message_id(seen) != message_id(gone)
    assert "Nats-TTL" not in encode(seen, source="s").headers
    assert encode(gone, source="s").headers["Nats-TTL"] == "3600s"


def test_a_wish_repeated_is_a_new_message() -> None:
    def wish(asked: int) -> VoidClaim:
        return VoidClaim(
            domain="p",
            claim_uid="u",
            namespace="n",
            name="c",
            attempt=1,
            reason="r",
            asked=asked,
        )

    assert message_id(wish(0)) != message_id(wish(1))


def test_headers_left_out_are_absent() -> None:
    headers = encode(Tick(revision=1, now_unix_s=1.0), source="s", now_unix_s=0.25).headers
    assert headers["ce-time"] == "1970-01-01T00:00:00.250000Z"
    assert headers["ce-id"] == headers["Nats-Msg-Id"]
    assert {"traceparent", "ce-correlationid", "ce-causationid"}.isdisjoint(headers)


def test_a_message_that_does_not_fit_its_type_is_named() -> None:
    delivered = Delivered("dray.state.tick.v1", b'{"revision":"x"}', {}, "S", 1, 0.0)
    with pytest.raises(
        UndecodableMessageError, match=r"tick\.v1 on dray\.state\.tick\.v1.*revision"
    ):
        decode(delivered, Tick)


def test_a_checkpoint_of_nothing_is_empty() -> None:
    made = Checkpoint(domain="p", epoch=1, writer="w", facts_sequence=0, now_unix_s=0.0)
    assert made.excluded == {}


def test_a_message_can_not_be_made_before_it_says_its_ids_and_its_key():
    class Half(Message):
        def ids(self) -> tuple[str, ...]:
            return ()

    with pytest.raises(TypeError, match=r"abstract method '?key"):
        Half()
