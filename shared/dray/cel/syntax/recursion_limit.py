"""Room on Python's stack for the deepest expression that the parser lets through."""

import sys
from typing import Final

_SHALLOW: Final = 40
_ROOM: Final = 6_000
"""Frames: 250 nested brackets, each with a relation, a sum, signs and chains around it, take
800 levels of the tree, and no walk over it takes more than five frames a level."""


def raise_recursion_limit(brackets: int) -> None:
    """Raise the interpreter's recursion limit where ``brackets`` could exceed it.

    It stays raised, for other threads may be as deep. Calls between Python functions take no
    room on the C stack, and the parser bounds how deep an expression is.
    """
    if brackets > _SHALLOW and sys.getrecursionlimit() < _ROOM:
        sys.setrecursionlimit(_ROOM)
