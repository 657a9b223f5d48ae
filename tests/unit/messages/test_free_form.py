"""Facts that are not free-form are decoded without a look at their depth."""

from collections.abc import Iterator

import msgspec
import pytest
from msgspec import inspect

from dray.api.json_codec import MAX_NESTING
from dray.messages.base import Message, UndecodableMessageError, decode
from dray.messages.facts import FACTS, NodeObserved

OF_EARLIER_RELEASES = "in_full"


def free_form_fields(
    kind: inspect.Type, path: str = "", seen: tuple[type, ...] = ()
) -> Iterator[str]:
    """Fields that hold any value."""
    if isinstance(kind, inspect.AnyType):
        yield path
    elif isinstance(kind, inspect.StructType | inspect.DataclassType):
        for field in kind.fields if kind.cls not in seen else ():
            yield from free_form_fields(field.type, field.name, (*seen, kind.cls))
    else:
        parts = [getattr(kind, name, None) for name in ("item_type", "key_type", "value_type")]
        parts += [*getattr(kind, "item_types", ()), *getattr(kind, "types", ())]
        for part in parts:
            if part is not None:
                yield from free_form_fields(part, path, seen)


@pytest.mark.parametrize("message", FACTS, ids=lambda one: one.NAME)
def test_only_free_form_facts_have_fields_of_any_depth(message: type[Message]) -> None:
    free = {*free_form_fields(inspect.type_info(message))} - {OF_EARLIER_RELEASES, "parameters"}

    assert bool(free) == message.IS_FREE_FORM


@pytest.mark.parametrize("levels", [MAX_NESTING + 1, 100_000])
def test_deep_fields_of_a_newer_release_are_ignored(levels: int) -> None:
    node = msgspec.json.encode({"name": "n1", "uid": "u", "pool": "p"})
    deep = b"[" * levels + b"]" * levels
    found = decode(b'{"revision":1,"node":%b,"newer":%b}' % (node, deep), NodeObserved)

    assert found.node.name == "n1"


def test_text_that_is_not_json_is_undecodable() -> None:
    with pytest.raises(UndecodableMessageError):
        decode(b'{"revision":1,"node":' + b"[" * 100_000, NodeObserved)
