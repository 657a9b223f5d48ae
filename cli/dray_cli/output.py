"""How verbs print data: for people, as JSON, and as YAML the way kubectl writes it."""

import json
from typing import Any

import click
import yaml

from dray.api import json_codec

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Print for people, or as JSON for programs.",
)


class _KubectlDumper(yaml.SafeDumper):
    """Uses double quotes if quotes are needed, as kubectl does."""

    def choose_scalar_style(self) -> str:
        style: str = super().choose_scalar_style()
        return '"' if style == "'" else style


def as_yaml(obj: dict[str, Any]) -> str:
    """The object as ``kubectl get -o yaml`` prints it."""
    text: str = yaml.dump(obj, Dumper=_KubectlDumper, sort_keys=True)
    return text


def print_json(data: Any) -> None:
    """Print data as JSON with two spaces of indentation; a note replaces data nested too deep."""
    click.echo(json.dumps(json_codec.abridged(data), indent=2, sort_keys=False))
