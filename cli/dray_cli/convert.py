"""``dray convert``: converts manifests in the user guide's form to valid Kubernetes manifests."""

import json
from collections.abc import Iterator
from itertools import groupby
from typing import TextIO

import click

from dray.user_guide_form.documents import Conversion
from dray.user_guide_form.documents import convert as convert_text
from dray_cli.files import name_of, naming, text_of


@click.command()
@click.argument(
    "named", metavar="[FILE]...", nargs=-1, type=click.File("r", encoding="utf-8", lazy=True)
)
@click.option(
    "-f",
    "--filename",
    "flagged",
    type=click.File("r", encoding="utf-8", lazy=True),
    multiple=True,
    help="Manifest file, or - for standard input; repeatable.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="YAML keeps comments and key order; JSON is one object, or a List of them.",
)
@click.option("--explain", is_flag=True, help="Say on standard error what was changed and why.")
def convert(
    named: tuple[TextIO, ...], flagged: tuple[TextIO, ...], output: str, explain: bool
) -> None:
    """Convert manifests to valid resource.k8s.io/v1; - is standard input.

    Documents that are already valid, and those of other API groups, are printed unchanged: the
    output can be piped to `kubectl apply -f -`. Warnings are always printed to standard error.
    """
    files = named + flagged
    if not files:
        raise click.UsageError("no file given: expected dray convert FILE, or - for standard input")
    conversions = [_converted(file) for file in files]
    for file, conversion in zip(files, conversions, strict=True):
        for line in _conversion_lines(name_of(file), conversion, explain=explain):
            click.echo(line, err=True)
    click.echo(_as_json(conversions) if output == "json" else _as_yaml(conversions), nl=False)


def _converted(file: TextIO) -> Conversion:
    text = text_of(file)
    with naming(file):
        return convert_text(text)


def _conversion_lines(file: str, conversion: Conversion, *, explain: bool) -> Iterator[str]:
    """The warnings, and if ``explain`` the changes, below the object that they are about."""
    notes = [note for note in conversion.notes if explain or note.is_warning]
    for (number, described), group in groupby(notes, key=lambda note: (note.document, note.object)):
        yield f"{file}: document {number}, {described}"
        for note in group:
            yield f"  {'warning: ' if note.is_warning else ''}{note.text}"


def _as_yaml(conversions: list[Conversion]) -> str:
    """The texts as one stream."""
    whole = conversions[0].text
    for conversion in conversions[1:]:
        separated = conversion.text.startswith("---")
        ending = "" if whole.endswith("\n") or not whole else "\n"
        whole += ending + ("" if separated else "---\n") + conversion.text
    return whole


def _as_json(conversions: list[Conversion]) -> str:
    objects = [found for conversion in conversions for found in conversion.objects]
    many = {"apiVersion": "v1", "kind": "List", "items": objects}
    return json.dumps(objects[0] if len(objects) == 1 else many, indent=2) + "\n"
