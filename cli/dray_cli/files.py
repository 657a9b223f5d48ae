"""Text of files that the command line names."""

import contextlib
from collections.abc import Iterator
from typing import TextIO

from dray.api.errors import InvalidInputError


def text_of(file: TextIO) -> str:
    """The whole text of a file, or of standard input.

    Raises:
        InvalidInputError: the text is not UTF-8.
    """
    try:
        return file.read()
    except UnicodeDecodeError as error:
        seen = error.object[error.start]
        raise InvalidInputError(
            f"{file.name} is not a text file: byte {seen:#04x} at offset {error.start} is not UTF-8"
        ) from None


def name_of(file: TextIO) -> str:
    """The file's name in messages."""
    return "<stdin>" if file.name == "-" else file.name


@contextlib.contextmanager
def naming(file: TextIO) -> Iterator[None]:
    """Context that adds the file's name to errors in the file's text.

    Raises:
        InvalidInputError: the file's name, then what is wrong.
    """
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{name_of(file)}: {error}") from error
