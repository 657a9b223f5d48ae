"""Errors for recorded lines that this version can't decode."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from dray.messages.base import UndecodableMessageError
from dray.recording.file import BadRecordingError
from dray.recording.journal import UnknownEventError


@contextmanager
def version_errors(what: str) -> Iterator[None]:
    """Context in which ``what``, a line of a recording, is decoded and applied.

    Raises:
        BadRecordingError: the line can't be decoded; the cause is kept.
        UnknownEventError: not converted, because the caller counts these errors.
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
            f"{what} can't be replayed: {type(error).__name__}: {error}; "
            "was it edited, or recorded by another version of dray?"
        ) from error
