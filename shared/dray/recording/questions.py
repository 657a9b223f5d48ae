"""Questions as a journal has them: by name, with all that the answer depends on."""

from typing import TypeVar

import msgspec

from dray.messages.base import AbstractStruct


class RuleInput(
    msgspec.Struct, metaclass=AbstractStruct, frozen=True, kw_only=True, tag_field="question"
):
    """Base of the questions that a service asks its pure code. The tag is the name; the service's
    own base says of what it is asked, in its abstract ``answer``."""


Q = TypeVar("Q", bound=RuleInput)


def name_of(question: type[RuleInput]) -> str:
    """The name that the journal has."""
    return str(question.__struct_config__.tag)


def by_name(*questions: type[Q]) -> dict[str, type[Q]]:
    """The questions that a service knows, by the name that the journal has."""
    return {name_of(question): question for question in questions}
