"""The tree of dray's errors.

DrayError
├── TemporaryError      the same call may succeed later; the caller retries
└── PermanentError      repeating it changes nothing; the caller reports it
    └── InvalidInputError   a person wrote something that can't be accepted

A message says what failed, which object, what was seen, what was expected and what to do.
"""


class DrayError(Exception):
    """Anything dray reports as its own failure."""


class TemporaryError(DrayError):
    """The same call may succeed later."""


class PermanentError(DrayError):
    """Repeating the call changes nothing."""


class InvalidInputError(PermanentError):
    """What a person wrote can't be accepted as it is."""
