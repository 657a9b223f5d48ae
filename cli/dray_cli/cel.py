"""``dray cel``: translate a selector, or ask it about the devices of a file."""

import sys
from collections.abc import Iterator
from typing import Any, TextIO

import click

from dray.cel.device import DeviceView, view_from_json
from dray.cel.errors import CelEvaluationError
from dray.cel.evaluate import Program, compile
from dray.seed import yaml_door
from dray.seed.dialect import translate as translate_text
from dray_cli.output import output_option, print_json


@click.group()
def cel() -> None:
    """Translate and evaluate device selectors."""


@cel.command()
@click.argument("expression")
@output_option
@click.option("--explain", is_flag=True, help="Say on standard error what was changed and why.")
def translate(expression: str, output: str, explain: bool) -> None:
    """Print EXPRESSION (- reads it from standard input) in the dialect of Kubernetes."""
    found = translate_text(_text(expression))
    if output == "json":
        shown = {
            "expression": found.expression,
            "changes": list(found.changes),
            "warnings": list(found.warnings),
        }
        print_json(shown)
        return
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    for change in found.changes if explain else ():
        click.echo(change, err=True)
    click.echo(found.expression.removesuffix("\n"))


@cel.command("eval")
@click.argument("expression")
@click.option(
    "-f",
    "--filename",
    "file",
    type=click.File("r", encoding="utf-8"),
    required=True,
    help="ResourceSlices as YAML or JSON (a List too), or - for standard input.",
)
@output_option
@click.option("--explain", is_flag=True, help="Show each clause, and what it read.")
def evaluate(expression: str, file: TextIO, output: str, explain: bool) -> None:
    """Say which devices of the slices EXPRESSION selects, in either dialect."""
    program = compile(translate_text(_text(expression)).expression)
    rows = [_row(program, name, view) for name, view in _devices(file.read())]
    if output == "json":
        print_json(rows)
        return
    for row in rows:
        click.echo(f"{row['device']}  {row['result']}  {row['why']}".rstrip())
        for line in _clause_lines(row) if explain else ():
            click.echo(line)


def _clause_lines(row: dict[str, Any]) -> Iterator[str]:
    for clause in row["clauses"]:
        values = ("absent" if value is None else repr(value) for value in clause["read"].values())
        seen = f"  (read {', '.join(values)})" if clause["read"] else ""
        yield f"    {clause['result']:5}  {clause['clause']}{seen}"


def _text(expression: str) -> str:
    return sys.stdin.read() if expression == "-" else expression


def _row(program: Program, name: str, view: DeviceView) -> dict[str, Any]:
    clauses = program.explain(view)
    try:
        matches = program.matches(view)
        result, why = ("match" if matches else "no match"), ""
    except CelEvaluationError as error:
        matches, result, why = False, "error", str(error)
    if not matches and not why:
        why = next((clause.text for clause in clauses if clause.value is False), "")
    shown = [
        {
            "clause": clause.text,
            "result": "error" if clause.value is None else str(clause.value).lower(),
            "error": clause.error,
            "read": {path: _shown(value) for path, value in clause.read.items()},
        }
        for clause in clauses
    ]
    return {"device": name, "result": result, "why": why, "clauses": shown}


def _shown(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _devices(text: str) -> Iterator[tuple[str, DeviceView]]:
    """Pool, name and view of every device in the ResourceSlices of a stream."""
    for document in yaml_door.split(text):
        content = yaml_door.plain(yaml_door.load(document))
        listed = content.get("items", [content]) if isinstance(content, dict) else []
        for found in listed:
            if not isinstance(found, dict) or found.get("kind") != "ResourceSlice":
                continue
            spec = found.get("spec", {})
            pool = spec.get("pool", {}).get("name", "")
            for device in spec.get("devices", []):
                view = view_from_json(spec.get("driver", ""), device)
                yield f"{pool}/{device.get('name', '')}", view
