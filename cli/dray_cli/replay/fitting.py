"""Recorded data that this version's code can't take: an error that names the line."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from dray.messages.base import UndecodableMessageError
from dray.recording.file import BadRecordingError
from dray.recording.journal import UnknownEventError


@contextmanager
def fitting(what: str) -> Iterator[None]:
    """Around all that decodes or folds ``what``, a line of a recording.

    Raises:
        BadRecordingError: it doesn't fit; the cause is kept.
        UnknownEventError: goes through, as those are counted.
    """
    try:
        yield
    except UnknownEventError:
        raise
    except UndecodableMessageError as error:
        raise BadRecordingError(f"{what}: {error}") from error
    except (
        msgspec.MsgspecError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
    ) as error:
        raise BadRecordingError(
            f"{what} can't be taken: {type(error).__name__}: {error}; "
            "was it edited, or recorded by another version of dray?"
        ) from error
