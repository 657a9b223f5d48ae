"""Bad selectors for ``benchmarks.cel``: truncated, nested, huge, badly encoded, and made up."""

import random
from collections.abc import Callable, Iterator

from benchmarks.cel_fleet import Asked

_PIECES = (
    "device", ".", "attributes", "[", "]", "(", ")", "{", "}", '"', "'", "?", ":", ",", "&&", "||",
    "!", "-", "==", "in", "has", "all", "x", "1", "0x", "1e", "u", "\\", "\n", "//", "'''", 'r"',
    "\x00", "\ud800", "é", "𝔘", "null", "true", "optional.of", "cel.bind", ".?", "[?",
)  # fmt: skip


class Hostile:
    """Texts by kind; the same seed gives the same ones."""

    def __init__(self, seed: int = 3) -> None:
        self._random = random.Random(seed)
        self._asked = Asked(seed)
        self._rare: tuple[tuple[str, Callable[[], str]], ...] = (
            ("nested 10,000 deep", self._nested),
            ("huge literal", self._huge),
            ("1 MB of text", self._megabyte),
            ("long chain", self._chain),
        )
        self._common: tuple[tuple[str, Callable[[], str]], ...] = (
            ("truncated", self._truncated),
            ("garbled", self._garbled),
            ("in no encoding", self._decoded),
            ("made up", self._made_up),
        )

    def texts(self, count: int) -> Iterator[tuple[str, str]]:
        """``count`` texts, each with the name of its kind. One in ten is big."""
        for number in range(count):
            kinds = self._rare if number % 10 == 0 else self._common
            name, make = kinds[number // 10 % 4 if number % 10 == 0 else number % 4]
            yield name, make()

    def _truncated(self) -> str:
        text = self._asked.selector()
        return text[: self._random.randrange(len(text))]

    def _garbled(self) -> str:
        text = list(self._asked.selector())
        for _ in range(self._random.randrange(1, 6)):
            text[self._random.randrange(len(text))] = self._random.choice(_PIECES)
        return "".join(text)

    def _decoded(self) -> str:
        size = self._random.randrange(1, 300)
        return self._random.randbytes(size).decode("utf-8", "surrogateescape")

    def _made_up(self) -> str:
        return "".join(self._random.choices(_PIECES, k=self._random.randrange(1, 400)))

    def _nested(self) -> str:
        opening = self._random.choice(("(", "[", "{", "!", "-", "a(", "a[", "a ? b : ", "{1:", "?"))
        return opening * (10_000 // len(opening)) + self._random.choice(("", "1", "x)" * 99))

    def _huge(self) -> str:
        digit = self._random.choice("0123456789abcdef")
        before = self._random.choice(("0x", "1e", "", "-", '"', "'''", 'b"\\x', 'r"', "1."))
        return f"{before}{digit * self._random.randrange(5_000, 10_000)} == 1"

    def _megabyte(self) -> str:
        return self._random.choice(_PIECES[:40]) * 1_000_000

    def _chain(self) -> str:
        link = self._random.choice((" && true", " || x", ".a", "[0]", " + 1", ".f()", ", 1", "!"))
        return "device" + link * (9_900 // len(link))
