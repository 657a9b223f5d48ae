"""Byte budget of a cache, estimated from its keys."""

from typing import Final

_ENTRY_BYTES: Final = 1024
_PER_BYTE: Final = 3
"""Memory of an entry per byte of its key: the entry repeats most of the key as objects."""


class CacheBudget:
    """Budget of one cache, which is emptied as a whole when the budget is exceeded."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._used = 0

    def takes(self, key_bytes: int) -> bool:
        """Count an entry whose key has this many bytes.

        False: the budget is exceeded; the caller empties the cache, and only this entry counts.
        """
        size = _ENTRY_BYTES + _PER_BYTE * key_bytes
        self._used += size
        if self._used <= self._most:
            return True
        self._used = size
        return False
