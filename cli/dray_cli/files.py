"""Text of files that the command line names."""

from typing import TextIO

from dray.domain.errors import InvalidInputError


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
            f"{file.name} is no text: byte {seen:#04x} at offset {error.start} is not UTF-8"
        ) from None
