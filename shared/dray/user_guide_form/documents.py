"""Converts whole files with the user guide's objects to objects that Kubernetes accepts.

Documents that need no change are returned byte for byte, even if a valid object means something
that its author may not want (a warning says so). In the others, comments and the order of keys are
kept. A second conversion changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dray.api.errors import InvalidInputError
from dray.user_guide_form import yaml_adapter
from dray.user_guide_form.claims import convert_claim, convert_class, convert_template
from dray.user_guide_form.nodes import convert_node
from dray.user_guide_form.notes import ConversionNotes
from dray.user_guide_form.slices import convert_slice
from dray.user_guide_form.yaml_adapter import Mapping

_GROUP: Final = "resource.k8s.io/"
_VERSIONS: Final = ("v1beta2", "v1")
_KINDS: Final[dict[str, Callable[[Mapping, ConversionNotes], None]]] = {
    "ResourceClaimTemplate": convert_template,
    "ResourceClaim": convert_claim,
    "ResourceSlice": convert_slice,
    "DeviceClass": convert_class,
}


@dataclass(frozen=True, slots=True)
class Note:
    """One change or warning, and its object."""

    document: int
    """Number of the document in the file, from 1."""
    object: str
    """Kind and name, such as ``ResourceSlice/node-01``."""
    text: str
    is_warning: bool = False

    def __str__(self) -> str:
        kind = "warning: " if self.is_warning else ""
        return f"document {self.document} ({self.object}): {kind}{self.text}"


@dataclass(frozen=True, slots=True)
class Conversion:
    """The converted stream, and the changes with their reasons."""

    text: str
    notes: tuple[Note, ...]
    objects: tuple[Any, ...]
    """Content of every document that is not empty, as dicts and lists."""


def convert(text: str) -> Conversion:
    """The valid form of a stream of YAML documents (JSON is also YAML).

    Raises:
        InvalidInputError: not YAML, or an object can't be made valid; it names the object.
    """
    parts, notes, objects = list[str](), list[Note](), list[Any]()
    for number, document in enumerate(yaml_adapter.split(text), start=1):
        try:
            content = yaml_adapter.load(document, strict=False)
            found = _converted(content, number)
            changed = any(not note.is_warning for note in found)
            if changed:
                yaml_adapter.load(document)  # later steps would lose a duplicate key
            if content is not None:
                objects.append(yaml_adapter.plain(content))
        except InvalidInputError as error:
            raise InvalidInputError(f"document {number}: {error}") from error
        parts.append(yaml_adapter.dump(content, document) if changed else document)
        notes += found
    return Conversion("".join(parts), tuple(notes), tuple(objects))


def _converted(content: Any, number: int) -> list[Note]:
    """Convert ``content`` in place; the items of a List one by one."""
    if not isinstance(content, dict):
        return []
    items = content.get("items")
    if str(content.get("kind", "")).endswith("List") and isinstance(items, list):
        inner = [note for item in items for note in _converted(item, number)]
        return inner + _with_notes(content, number, _convert_version)
    return _with_notes(content, number, _convert_object)


def _with_notes(
    content: Mapping, number: int, convert_one: Callable[[Mapping, ConversionNotes], object]
) -> list[Note]:
    notes = ConversionNotes()
    metadata = content.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    described = f"{content.get('kind', 'object')}/{name}"
    try:
        convert_one(content, notes)
    except InvalidInputError as error:
        raise InvalidInputError(f"{described}: {error}") from error
    changes = [Note(number, described, text) for text in notes.changes]
    return changes + [Note(number, described, text, is_warning=True) for text in notes.warnings]


def _convert_object(content: Mapping, notes: ConversionNotes) -> None:
    if (content.get("apiVersion"), content.get("kind")) == ("v1", "Node"):
        convert_node(content, notes)
        return
    change = _KINDS.get(str(content.get("kind", "")))
    if change is None or not _convert_version(content, notes):
        return
    change(content, notes)


def _convert_version(content: Mapping, notes: ConversionNotes) -> bool:
    """Change the API version to v1; False if the object has another group or version."""
    found = str(content.get("apiVersion", ""))
    group, version = found[: len(_GROUP)], found[len(_GROUP) :]
    if group != _GROUP:
        return False
    if version not in _VERSIONS:
        notes.warn(f"{found} is not converted: only v1beta2, which has the form of v1")
        return False
    if version != "v1":
        content["apiVersion"] = _GROUP + "v1"
        notes.change(f"apiVersion {found} → {_GROUP}v1: beta versions are not served by default")
    return True
