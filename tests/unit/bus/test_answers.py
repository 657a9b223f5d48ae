"""Answers of JetStream's API, and such as it never gave."""

import msgspec
import pytest

from dray.bus.jetstream_api import ask, error_of, last_message, state_from, store
from dray.bus.ports import (
    BusUnavailableError,
    NoRoomError,
    StaleSequenceError,
    StreamMissingError,
)
from dray.messages.base import Outgoing

NONSENSE = [
    b"",
    b"\xff",
    b"[]",
    b"null",
    b"{}",
    b'{"error": "no"}',
    b'{"error": {"code": "no"}}',
    b'{"seq": "no", "message": {}, "state": {}}',
    b'{"seq": null, "message": {"subject": "s", "seq": 1, "time": "no", "hdrs": "no"}}',
]


class Session:
    """One that gets the same answer to whatever it asks."""

    api = "$JS.API."

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    async def request(self, subject, payload, *, timeout_s, headers=None):
        return self._answer


@pytest.mark.parametrize("answer", NONSENSE)
async def test_an_answer_that_makes_no_sense_leaves_the_outcome_unknown(answer):
    with pytest.raises(BusUnavailableError, match="nonsense"):
        await store(Session(answer), Outgoing("s", b""), timeout_s=1.0)
    with pytest.raises(BusUnavailableError, match="nonsense"):
        await last_message(Session(answer), "S", "s")
    with pytest.raises(BusUnavailableError, match="nonsense"):
        state_from(await ask(Session(answer), "STREAM.INFO.S"))


@pytest.mark.parametrize(
    ("code", "err_code", "expected"),
    [
        (500, 10047, NoRoomError),
        (503, 10077, BusUnavailableError),
        (404, 10059, StreamMissingError),
        (400, 10071, StaleSequenceError),
    ],
    ids=["disk full", "store failed", "no stream", "another sequence"],
)
async def test_only_what_the_server_can_do_nothing_about_is_for_good(code, err_code, expected):
    problem = {"code": code, "err_code": err_code, "description": "the server refused"}
    assert type(error_of(problem, "S")) is expected
    with pytest.raises(expected, match="the server refused"):
        await ask(Session(msgspec.json.encode({"error": problem})), "STREAM.INFO.S")
