"""Watched objects by name, kept as JSON text. Pure."""

from collections.abc import Iterator, Mapping

import msgspec

from dray.kube.object_text import object_from, text_of
from dray.kube.ports import Object


class ObjectText(msgspec.Struct, frozen=True, gc=False):
    """One version of an object."""

    uid: str
    revision: int
    text: bytes


class ObjectTexts(Mapping[str, Object]):
    """Objects by ``namespace/name``. Reading one decodes it; changes to the result are not kept."""

    def __init__(self) -> None:
        self._texts: dict[str, ObjectText] = {}

    def __getitem__(self, name: str) -> Object:
        return object_from(self._texts[name].text)

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def version(self, name: str) -> ObjectText | None:
        """The stored version of an object, as text."""
        return self._texts.get(name)

    def versions(self) -> list[tuple[str, ObjectText]]:
        """Names and stored versions of all objects."""
        return list(self._texts.items())

    def put(self, name: str, version: ObjectText) -> None:
        """Store an object."""
        self._texts[name] = version

    def put_object(self, name: str, obj: Object) -> None:
        """Store an object of a snapshot."""
        metadata = obj["metadata"]
        self.put(name, ObjectText(metadata["uid"], int(metadata["resourceVersion"]), text_of(obj)))

    def drop(self, name: str) -> None:
        """Remove an object that is there."""
        del self._texts[name]
