"""What caches may hold: so many bytes, as far as what tells their entries apart says how many."""

from typing import Final

_OF_EACH: Final = 1024
_PER_BYTE: Final = 3
"""An entry takes some three times the memory of the bytes that tell it apart: it has most of what
they say in words of its own."""


class CacheBudget:
    """Room for the entries of one cache, which goes as a whole where it is outgrown."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held = 0

    def takes(self, told: int) -> bool:
        """Count in an entry that so many bytes tell apart; False where there is no room for it
        besides the others, which are to go and count no more."""
        size = _OF_EACH + _PER_BYTE * told
        self._held += size
        if self._held <= self._most:
            return True
        self._held = size
        return False
