"""The JSON schema of every wire type."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from dray.messages.base import Message, ce_type, subject_prefix
from dray.messages.commands import COMMANDS
from dray.messages.decisions import RECORDS
from dray.messages.events import EVENTS
from dray.messages.facts import FACTS
from dray.messages.inputs import INPUTS
from dray.messages.rpc import QUESTIONS
from dray.messages.usage import USAGE
from tools.generate.output import Output

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, dict[str, Any]]:
    """Every schema by its file's name."""
    return dict(sorted(_schemas()))


def rendered(schema: dict[str, Any]) -> str:
    """The file's text: keys sorted, so that equal schemas are equal files."""
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    for message in (*FACTS, *EVENTS, *COMMANDS, *INPUTS, *USAGE):
        name = f"{message.KIND}.{message.NAME}.v{message.VERSION}.json"
        yield name, _schema(message, ce_type(message), f"{subject_prefix(message)}.*")
    for record in RECORDS:
        tag = record.__struct_config__.tag
        yield (
            f"decision.{tag}.v{record.VERSION}.json",
            _schema(
                record,
                f"dev.dray.decision.{tag}.v{record.VERSION}",
                "dray.decision.<domain>.<epoch>",
            ),
        )
    for one in QUESTIONS:
        for name, kind in ((one.name, one.asked), (f"{one.name}-reply", one.reply)):
            title = f"dev.dray.{name}.v1"
            yield f"rpc.{name}.v1.json", _schema(kind, title, one.asked.SUBJECT)


def _schema(wire_type: type[msgspec.Struct] | type[Message], title: str, subject: str) -> Any:
    schema = msgspec.json.schema(wire_type, schema_hook=_anything)
    return {"$schema": _DRAFT, "title": title, "x-subject": subject, **schema}


def _anything(_: type) -> dict[str, Any]:
    # ``object`` in the domain's values.
    return {"description": "any JSON value"}


OUTPUT = Output(
    "docs/schemas",
    lambda: {name: rendered(schema) for name, schema in schemas().items()},
    owned="*.json",
)
