"""The tree of dray's errors.

DrayError
├── TemporaryError      the same call may succeed later; the caller retries
└── PermanentError      repeating it changes nothing; the caller reports it
    └── InvalidInputError   a person wrote something that can't be accepted

A message names what failed, the object, what was seen, what was expected and what to do.
"""


class DrayError(Exception):
    """Base of all failures that dray reports as its own."""


class TemporaryError(DrayError):
    """The same call may succeed later."""


class PermanentError(DrayError):
    """Repeating the call changes nothing."""


class InvalidInputError(PermanentError):
    """A person wrote something that can't be accepted."""
