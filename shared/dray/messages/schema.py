"""Writes the JSON schema of every wire type: ``python -m dray.messages.schema [--check]``.

The files are committed, so that a change of the wire shows in review.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from dray.messages.base import Message, ce_type, subject_prefix
from dray.messages.commands import COMMANDS
from dray.messages.decisions import RECORDS
from dray.messages.events import EVENTS
from dray.messages.facts import FACTS
from dray.messages.inputs import INPUTS
from dray.messages.rpc import QUESTIONS

FOLDER = Path(__file__).parents[3] / "docs" / "schemas"
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, dict[str, Any]]:
    """Every schema by its file's name."""
    return dict(sorted(_schemas()))


def rendered(schema: dict[str, Any]) -> str:
    """The file's text: keys sorted, so that equal schemas are equal files."""
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def differences(folder: Path) -> list[str]:
    """What in ``folder`` is not as the wire types say, in words."""
    wanted = {name: rendered(schema) for name, schema in schemas().items()}
    found = {path.name: path.read_text("utf-8") for path in sorted(folder.glob("*.json"))}
    return [
        *(f"{name} is missing" for name in wanted if name not in found),
        *(f"{name} belongs to no wire type" for name in found if name not in wanted),
        *(f"{name} differs" for name in wanted if found.get(name, wanted[name]) != wanted[name]),
    ]


def write(folder: Path) -> None:
    """Make ``folder`` hold exactly the schemas."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = schemas()
    for path in folder.glob("*.json"):
        if path.name not in wanted:
            path.unlink()
    for name, schema in wanted.items():
        (folder / name).write_text(rendered(schema), "utf-8")


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 when ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m dray.messages.schema", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 if they differ")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: docs/schemas")
    options = parser.parse_args(arguments)
    if not options.check:
        write(options.folder)
        return 0
    problems = differences(options.folder)
    for problem in problems:
        print(f"{options.folder}: {problem}", file=sys.stderr)
    if problems:
        print("run python -m dray.messages.schema, and look at the change", file=sys.stderr)
    return 1 if problems else 0


def _schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    for message in (*FACTS, *EVENTS, *COMMANDS, *INPUTS):
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


if __name__ == "__main__":
    raise SystemExit(main())
