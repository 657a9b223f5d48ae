"""The parts of a call that determine its cost: function, overload, operand sizes."""

from collections.abc import Callable
from typing import Final, NamedTuple

from dray.cel.cost.sizes import ONE, UNKNOWN, SizeRange, declared_size
from dray.cel.syntax.tree import SyntaxNode
from dray.cel.types.types import Type

TENTH: Final = 0.1
"""The cost per character of a traversal."""
QUARTER: Final = 0.25
"""The cost per character of a regular expression."""


class Sized(NamedTuple):
    """An operand: its node, its type, its size if known, and its path."""

    node: SyntaxNode
    type: Type
    known: SizeRange | None
    path: Callable[[], list[str]]

    @property
    def size(self) -> SizeRange:
        return self.known or declared_size(self.path()) or UNKNOWN

    @property
    def computed(self) -> SizeRange:
        """The size without looking up the declared size of its path."""
        return self.known or UNKNOWN

    @property
    def items(self) -> SizeRange | None:
        """The size of each element of a list."""
        if not self.type.parameters:
            return None
        path = self.path()
        return (declared_size([*path, "@items"]) if path else None) or UNKNOWN


class EstimatedCall(NamedTuple):
    """One call, with one of its overloads."""

    function: str
    overload: str
    target: Sized | None
    arguments: tuple[Sized, ...]
    is_newest: bool = False
    """Whether cel-go is 0.29, which counts ``matches(text, pattern)`` like the method."""


class Estimate(NamedTuple):
    """The cost of the call itself, and the size of its result if the rule gives it."""

    cost: SizeRange
    size: SizeRange | None = None


UNIT: Final = Estimate(ONE)
Rule = Callable[[EstimatedCall], Estimate | None]
"""The cost of a call without the cost of its operands; None if the rule does not apply."""
