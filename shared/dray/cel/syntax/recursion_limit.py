"""Makes Python's stack large enough for the deepest expression that the parser accepts."""

import sys
from typing import Final

_SHALLOW: Final = 40
_ROOM: Final = 6_000
"""Number of frames. 250 nested brackets, each with a relation, a sum, signs and chains around it,
make 800 levels of the tree. No walk over the tree takes more than five frames per level."""


def raise_recursion_limit(brackets: int) -> None:
    """Raise the interpreter's recursion limit if ``brackets`` could exceed it.

    It stays raised, because other threads may be as deep. Calls between Python functions need no
    space on the C stack, and the parser limits the depth of an expression.
    """
    if brackets > _SHALLOW and sys.getrecursionlimit() < _ROOM:
        sys.setrecursionlimit(_ROOM)
