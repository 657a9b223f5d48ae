"""A limit on how often something is done. Pure: the caller passes the time."""


class TokenBucket:
    """Allows ``most`` at once, then ``per_s`` per second. A clock that goes back adds nothing."""

    def __init__(self, most: float, per_s: float, *, now_s: float) -> None:
        self._most = most
        self._per_s = per_s
        self._left = most
        self._at_s = now_s

    def take(self, now_s: float) -> bool:
        """Whether it may be done once more now. If so, this counts as one use."""
        gained = max(0.0, now_s - self._at_s) * self._per_s
        self._left, self._at_s = min(self._most, self._left + gained), now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True
