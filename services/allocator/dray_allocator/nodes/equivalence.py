"""Classes of equal things, as fine as some plan needs: one verdict serves a whole class.

Ten thousand equal cards differ by uuid; as long as no selector reads it, they are one kind.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")
Read = Callable[[T], Hashable]

MOST_VALUES: Final = 256
"""A property with more values than this tells too much apart: it would make every thing a kind
of its own. What reads it is judged exactly, thing by thing, where it matters."""
_TOGETHER: Final = 1024
"""Things that are numbered before it is looked whether a property has too many values."""
_ROOM: Final = 4096
"""Kinds that may come and go before all are numbered again."""


class EquivalenceClasses(Generic[T]):
    """Kinds are numbered from 0. Things of one kind agree in ``base`` and in all that was asked."""

    def __init__(self, base: Read[T]) -> None:
        self._base = base
        self._asked: dict[Hashable, Read[T]] = {}
        self._wide: dict[Hashable, None] = {}
        self._bases: dict[Hashable, int] = {}
        self._levels: list[dict[tuple[int, Hashable], int]] = []
        self._values: list[dict[Hashable, None]] = []
        self._examples: list[T] = []
        self._after_renumbering = 0

    @property
    def count(self) -> int:
        """How many kinds there are; they are numbered from 0."""
        return len(self._examples)

    @property
    def outgrown(self) -> bool:
        """Whether the things should be numbered again, by ``ask``: many of the kinds are
        of the past, or a property has too many values."""
        too_many = self.count > 2 * self._after_renumbering + _ROOM
        return too_many or self._is_wide()

    def tells(self, question: Hashable) -> bool:
        """Whether things of one kind agree in the answer to ``question``."""
        return question in self._asked

    def knows(self, question: Hashable) -> bool:
        """Whether ``question`` was asked, even if its answers are too many to tell apart."""
        return question in self._asked or question in self._wide

    def example(self, kind: int) -> T:
        """A thing that is or was of this kind."""
        return self._examples[kind]

    def of(self, thing: T) -> int:
        """The kind of a thing; a new one where there was none like it."""
        kind = self._bases.setdefault(self._base(thing), len(self._bases))
        for read, level, values in zip(
            self._asked.values(), self._levels, self._values, strict=True
        ):
            value = read(thing)
            found = level.get((kind, value))
            if found is None:
                values[value] = None
                found = level[kind, value] = len(level)
            kind = found
        if kind == len(self._examples):
            self._examples.append(thing)
        return kind

    def ask(self, questions: Mapping[Hashable, Read[T]], things: Iterable[T]) -> list[int]:
        """Distinguish things by more questions, and number all kinds again.

        ``things``: all there are; returned are their kinds, in the same order.
        """
        known = tuple(things)
        for question, read in questions.items():
            if not self.knows(question):
                self._asked[question] = read
        found: list[int] | None = None
        while found is None:
            found = self._numbered(known)
        self._after_renumbering = self.count
        return found

    def _numbered(self, things: Sequence[T]) -> list[int] | None:
        """The kinds of all things; None where a question was found to tell too much apart, and
        was dropped."""
        self._drop_wide()
        self._bases, self._examples = {}, []
        self._levels = [{} for _ in self._asked]
        self._values = [{} for _ in self._asked]
        found: list[int] = []
        for start in range(0, len(things), _TOGETHER):
            found += map(self.of, things[start : start + _TOGETHER])
            if self._is_wide():
                return None
        return found

    def _is_wide(self) -> bool:
        return any(len(values) > MOST_VALUES for values in self._values)

    def _drop_wide(self) -> None:
        """A property that outgrew its bound no longer counts."""
        asked = tuple(self._asked)[: len(self._values)]
        for question, values in zip(asked, self._values, strict=True):
            if len(values) > MOST_VALUES:
                self._wide[question] = None
                del self._asked[question]
