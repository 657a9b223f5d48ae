"""Text of files that the command line names."""

import contextlib
from collections.abc import Iterator
from typing import TextIO

from dray.api.errors import InvalidInputError


def text_of(file: TextIO) -> str:
    """All of a file, or of standard input.

    Raises:
        InvalidInputError: it is not UTF-8.
    """
    try:
        return file.read()
    except UnicodeDecodeError as error:
        seen = error.object[error.start]
        raise InvalidInputError(
            f"{file.name} is not a text file: byte {seen:#04x} at offset {error.start} is not UTF-8"
        ) from None


def name_of(file: TextIO) -> str:
    """What messages call it."""
    return "<stdin>" if file.name == "-" else file.name


@contextlib.contextmanager
def naming(file: TextIO) -> Iterator[None]:
    """Errors in the file's text contain the file's name.

    Raises:
        InvalidInputError: what is wrong, after the name.
    """
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{name_of(file)}: {error}") from error
