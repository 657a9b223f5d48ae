"""A fast path through nats-py for messages that are read in bulk.

nats-py makes an object and a dictionary of headers for each message, and passes it through a queue
to a task. That costs more than applying a fact. For the subscriptions taken here, messages are cut
out of the connection's bytes and passed to a callback at once. nats-py handles all other messages.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import structlog
from nats.aio.client import Client
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

_END: Final = b"\r\n"
_MESSAGES: Final = (b"HMSG ", b"MSG ")
_VERSION: Final = b"NATS/1.0"

Take = Callable[[bytes, bytes, bytes, bytes], None]
"""Called with subject, reply subject, headers and payload. Must not raise."""


class Headers(Mapping[str, str]):
    """A message's headers, parsed on demand: most readers need one or none."""

    __slots__ = ("_block", "_read")

    def __init__(self, block: bytes) -> None:
        self._block = block
        """As received: a line with the version and maybe a status, then ``name: value`` lines."""
        self._read: dict[str, str] | None = None

    def __getitem__(self, name: str) -> str:
        if self._read is None:
            before = b"\r\n%b: " % name.encode()
            start = self._block.rfind(before) + len(before)
            if start >= len(before):
                end = self._block.find(_END, start)
                return self._block[start:end].strip().decode("utf-8", "replace")
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    @property
    def status(self) -> tuple[str, str]:
        """The server's status code and description; empty in messages of a stream."""
        line = self._block.partition(_END)[0].removeprefix(_VERSION).decode("utf-8", "replace")
        code, _, words = line.strip().partition(" ")
        return code, words

    def _all(self) -> dict[str, str]:
        if self._read is None:
            found: dict[str, str] = Client._parse_header_lines(self._block.partition(_END)[2])
            self._read = found
        return self._read


class BulkParser(Parser):  # type: ignore[misc]
    """Cuts the connection's bytes into messages. nats-py parses messages of other subscriptions."""

    def __init__(self, client: Client) -> None:
        self._ahead = bytearray()
        self._enough = 0
        """Bytes needed before the first message in the buffer is complete."""
        self._takes: dict[bytes, Take] = {}
        super().__init__(client)

    def take(self, subscription: int, take: Take) -> None:
        """Pass the messages of a subscription to ``take`` from now on."""
        self._takes[b"%d" % subscription] = take

    def leave(self, subscription: int) -> None:
        """Stop passing messages of a subscription."""
        self._takes.pop(b"%d" % subscription, None)

    def reset(self) -> None:
        """Clear the buffer; nats-py calls it with every connection."""
        super().reset()
        self._ahead.clear()
        self._enough = 0

    async def parse(self, data: bytes = b"") -> None:
        """Process the next bytes of the connection. Raises ProtocolError."""
        self._ahead += data
        if len(self._ahead) < self._enough:
            return
        block, at, self._enough = bytes(self._ahead), 0, 0
        while (line_end := block.find(_END, at)) >= 0:
            start = end = line_end + len(_END)
            if block.startswith(_MESSAGES, at):
                words = block[at:line_end].split()
                end += _number(words[-1]) + len(_END)
                if end > len(block):
                    self._enough = end - at
                    break
                take = self._takes.get(words[2]) if len(words) > 3 else None
                if take is not None:
                    reply, headers = _reply_and_headers(words)
                    body = start + headers
                    take(words[1], reply, block[start:body], block[body : end - len(_END)])
                    at = end
                    continue
            await self._pass(block[at:end], is_message=block.startswith(_MESSAGES, at))
            at = end
        del self._ahead[:at]

    async def _pass(self, whole: bytes, *, is_message: bool) -> None:
        """Let nats-py parse the bytes. A message that it can't parse is skipped: any client may
        send one, and the error would end the connection."""
        try:
            await super().parse(whole)
        except (ValueError, IndexError) as error:
            if not is_message:
                raise
            structlog.get_logger().warning(
                "skipped a message that can't be parsed", error=str(error)
            )


def _reply_and_headers(words: list[bytes]) -> tuple[bytes, int]:
    """The reply subject and the size of the headers, from a message's first line: ``MSG subject sid
    [reply] size``, or ``HMSG`` with the headers' size before it."""
    if words[0] == b"MSG":
        return words[3] if len(words) > 4 else b"", 0
    return words[3] if len(words) > 5 else b"", _number(words[-2])


def _number(word: bytes) -> int:
    if not word.isdigit():
        raise ProtocolError(f"nats: {word!r} is not a size of a message")
    return int(word)
