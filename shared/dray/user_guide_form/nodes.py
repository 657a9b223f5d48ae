"""Nodes as the user guide shows them (002): with the headings of ``kubectl describe``."""

from typing import Final

from dray.user_guide_form import yaml_adapter
from dray.user_guide_form.notes import ConversionNotes
from dray.user_guide_form.yaml_adapter import Mapping

_HEADING: Final = "Status"
_FIELDS: Final = {"Capacity": "capacity", "Allocatable": "allocatable"}


def convert_node(content: Mapping, notes: ConversionNotes) -> None:
    """Convert a Node in place: field names become lower case, because strict validation refuses
    others."""
    status = content.get(_HEADING)
    if not isinstance(status, dict) or "status" in content:
        return
    yaml_adapter.rename(content, _HEADING, "status", status)
    notes.change(f"{_HEADING} → status: the field's name in v1")
    for heading, name in _FIELDS.items():
        if heading in status and name not in status:
            yaml_adapter.rename(status, heading, name, status[heading])
            notes.change(f"status.{heading} → {name}: the field's name in v1")
