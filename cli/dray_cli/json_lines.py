"""For verbs with ``--batch``: one answer for each line, in order, even if a line is not JSON."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dray.api.errors import InvalidInputError

Question = dict[str, Any]
Answer = dict[str, Any]


def answers(
    lines: Iterable[bytes], answer: Callable[[Question], Answer], empty: Answer | None = None
) -> Iterator[Answer]:
    """Answer each line that is not blank as soon as it is read; an answer has the line's ``id``.

    If ``answer`` raises InvalidInputError, the answer is ``{"id", "error"}`` with the fields of
    ``empty``, and the next line follows.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _answer(line, number, answer, empty or {})


def _answer(
    line: bytes, number: int, answer: Callable[[Question], Answer], empty: Answer
) -> Answer:
    name = None
    try:
        question = _question(line)
        name = question.get("id")
        return {"id": name} | answer(question)
    except InvalidInputError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - a bug with one line must not end the stream
        reason = f"dray failed: {type(error).__name__}: {error}"
    return {"id": name} | empty | {"error": f"line {number}: {reason}"}


def _question(line: bytes) -> Question:
    try:
        question = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"no JSON: {error}") from None
    if not isinstance(question, dict):
        raise InvalidInputError(f"expected a JSON object, got {type(question).__name__}")
    return question
