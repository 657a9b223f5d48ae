"""Nodes as the seed shows them (002): with the headings of ``kubectl describe``."""

from typing import Final

from dray.seed import yaml_door
from dray.seed.notes import Notes
from dray.seed.yaml_door import Mapping

_HEADING: Final = "Status"
_FIELDS: Final = {"Capacity": "capacity", "Allocatable": "allocatable"}


def convert_node(content: Mapping, notes: Notes) -> None:
    """A Node, in place: fields are written small, and strict validation refuses others."""
    status = content.get(_HEADING)
    if not isinstance(status, dict) or "status" in content:
        return
    yaml_door.rename(content, _HEADING, "status", status)
    notes.change(f"{_HEADING} → status: the field's name in v1")
    for heading, name in _FIELDS.items():
        if heading in status and name not in status:
            yaml_door.rename(status, heading, name, status[heading])
            notes.change(f"status.{heading} → {name}: the field's name in v1")
