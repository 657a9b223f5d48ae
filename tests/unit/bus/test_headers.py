"""Headers are read as nats-py reads them, whoever wrote them."""

import pytest
from nats.aio.client import Client

from dray.bus.link import _Client


@pytest.mark.parametrize(
    "block",
    [
        b"Nats-Msg-Id: 1\r\nce-type: dev.dray.claim.v1\r\n\r\n",
        b"a: b: c\r\n\r\n",
        b"a:b\r\n\r\n",
        b"a: b\r\nc\r\n\r\n",
        b"a: \xc3\xa9\r\n\r\n",
        b"a: b\r\n",
        b"a: \r\n\r\n",
        b"",
    ],
)
def test_they_are_what_the_client_would_read(block):
    assert _Client._parse_header_lines(block) == Client._parse_header_lines(block)
