"""Messages cut out of the connection's bytes, however these are cut themselves."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from dray.bus.bulk_parser import BulkParser, Headers

HEADERS = b"NATS/1.0\r\nce-id: 1\r\n\r\n"
MESSAGES = (
    (b"facts.a", b"$JS.ACK.S.c.1.1.1.0.1", HEADERS, b"first"),
    (b"facts.b", b"", HEADERS, b""),
    (b"facts.c", b"reply", b"", b"MSG x 1 3\r\nabc\r\n"),
    (b"facts.d", b"", b"", b"\r\n\r\n"),
)


class Server:
    """What nats-py's parser tells its client."""

    def __init__(self):
        self.reported = []

    async def _process_msg(self, sid, subject, reply, payload, headers):
        self.reported.append((sid, subject, reply, headers or b"", payload))

    async def _process_ping(self):
        self.reported.append("PING")

    async def _process_err(self, error):
        self.reported.append(error)


def wire(sid, subject, reply, headers, payload):
    to = b" ".join(word for word in (subject, b"%d" % sid, reply) if word)
    if not headers:
        return b"MSG %b %d\r\n%b\r\n" % (to, len(payload), payload)
    sizes = b"%d %d" % (len(headers), len(headers) + len(payload))
    return b"HMSG %b %b\r\n%b%b\r\n" % (to, sizes, headers, payload)


STREAM = b"".join(wire(sid, *one) + b"PING\r\n+OK\r\n" for one in MESSAGES for sid in (1, 2)) + (
    b"-ERR 'Slow Consumer'\r\n"
)


async def read(make, pieces):
    """What the client gets, in order, and what the reader of subscription 2 gets."""
    server, found = Server(), []
    parser = make(server)
    if isinstance(parser, BulkParser):
        parser.take(2, lambda *message: found.append(message))
    for piece in pieces:
        await parser.parse(piece)
    return server.reported, found


def cut(data, places):
    ends = sorted({place % len(data) for place in places})
    starts = [0, *ends]
    return [data[start:end] for start, end in zip(starts, [*ends, len(data)], strict=True)]


@given(st.lists(st.integers(min_value=0, max_value=10_000), max_size=40))
async def test_wherever_the_bytes_are_cut_nothing_is_lost_or_read_twice(places):
    reported, found = await read(BulkParser, cut(STREAM, places))
    plain, _ = await read(Parser, [STREAM])
    assert found == list(MESSAGES)
    assert reported == [one for one in plain if one[0] != 2]


async def test_one_byte_after_the_other_is_as_good():
    pieces = [bytes([one]) for one in STREAM]
    assert await read(BulkParser, pieces) == await read(BulkParser, [STREAM])


async def test_who_left_gets_nothing_any_more():
    server, found = Server(), []
    parser = BulkParser(server)
    parser.take(2, lambda *message: found.append(message))
    parser.leave(2)
    await parser.parse(wire(2, *MESSAGES[0]))
    assert not found
    assert server.reported == [(2, *MESSAGES[0])]


async def test_a_new_connection_starts_with_nothing_ahead():
    server, found = Server(), []
    parser = BulkParser(server)
    parser.take(2, lambda *message: found.append(message))
    whole = wire(2, *MESSAGES[0])
    await parser.parse(whole[:-3])
    parser.reset()
    await parser.parse(whole)
    assert found == [MESSAGES[0]]


@pytest.mark.parametrize(
    "line",
    [
        b"HMSG s 2 12 x\r\n",
        b"MSG s 2 -\r\n",
        b"HMSG s 2 x 12\r\n" + b"." * 14,
        b"MSG \r\n",
        b"MSG s 2 -15\r\n",  # It would be read again and again.
        b"MSG s 2 1_0\r\n" + b"." * 12,
    ],
)
async def test_a_size_that_is_none_ends_the_connection(line):
    parser = BulkParser(Server())
    parser.take(2, lambda *message: None)
    with pytest.raises(ProtocolError):
        await parser.parse(line)


BLOCKS = [
    b"Nats-Msg-Id: 1\r\nce-type: dev.dray.claim.v1\r\n\r\n",
    b"a: b: c\r\n\r\n",
    b"a:b\r\n\r\n",
    b"a: b\r\nc\r\n\r\n",
    b"a: b\r\na: c\r\n\r\n",
    b"a: \xc3\xa9\r\n\r\n",
    b"a: b\r\n",
    b"a: \r\n\r\n",
    b"a:  b \r\n\r\n",
    b"",
]


@pytest.mark.parametrize("block", BLOCKS)
def test_headers_are_what_the_client_would_read(block):
    expected = Client._parse_header_lines(block)
    assert Headers(b"NATS/1.0\r\n" + block) == expected
    for name in ("a", "ce-type", "c"):
        one_by_one = Headers(b"NATS/1.0\r\n" + block)
        assert one_by_one.get(name) == expected.get(name)
        with suppress(KeyError):
            assert one_by_one[name] == expected[name]


def test_a_message_without_headers_has_none():
    assert Headers(b"") == {}
    assert Headers(b"").status == ("", "")


def test_the_servers_status_is_distinguished_from_headers():
    reported = Headers(b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 7\r\n\r\n")
    assert reported.status == ("408", "Request Timeout")
    assert reported["Nats-Pending-Messages"] == "7"
    assert Headers(HEADERS).status == ("", "")
    assert Headers(b"NATS/1.0 503\r\n\r\n").status == ("503", "")
