"""Inputs of pure rules as a journal records them: complete, with the rule's name."""

from typing import TypeVar

import msgspec

from dray.messages.base import AbstractStruct


class RuleInput(
    msgspec.Struct, metaclass=AbstractStruct, frozen=True, kw_only=True, tag_field="question"
):
    """Base of the inputs of a service's pure rules. The tag is the name. The service's own base
    class declares an abstract ``answer`` that evaluates the rule."""


Q = TypeVar("Q", bound=RuleInput)


def name_of(question: type[RuleInput]) -> str:
    """The name in the journal."""
    return str(question.__struct_config__.tag)


def by_name(*questions: type[Q]) -> dict[str, type[Q]]:
    """The rule inputs of a service, by their names in the journal."""
    return {name_of(question): question for question in questions}
