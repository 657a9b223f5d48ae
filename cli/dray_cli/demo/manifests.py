"""The example's files, in the order of their names, as objects that the API server accepts."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dray.api.errors import InvalidInputError
from dray.kube import ports
from dray.kube.ports import Object, Resource
from dray.user_guide_form.documents import convert

_KINDS = {
    resource.kind: resource
    for resource in (
        ports.NAMESPACES,
        ports.NODES,
        ports.PODS,
        ports.TEMPLATES,
        ports.CLAIMS,
        ports.POOLS,
        ports.POLICIES,
    )
}


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file, and whether ``dray convert`` had to change the file."""

    file: str
    resource: Resource
    object: Object
    converted: bool

    @property
    def namespace(self) -> str:
        """The object's namespace; empty for a cluster-scoped object."""
        if not self.resource.namespaced:
            return ""
        return str(self.object["metadata"].get("namespace", "default"))

    @property
    def title(self) -> str:
        """``kind namespace/name``."""
        name = self.object["metadata"]["name"]
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.resource.kind} {place}{name}"


def read_manifests(folder: Path, pattern: str = "*.yaml") -> Iterator[Manifest]:
    """Every object of the folder's files, in the order of their names.

    Raises:
        InvalidInputError: a document is of a kind that the demo doesn't apply.
    """
    for path in sorted(folder.glob(pattern)):
        text = path.read_text()
        valid = convert(text)
        for document in valid.objects:
            kind = document.get("kind", "")
            if kind not in _KINDS:
                raise InvalidInputError(
                    f"{path.name} holds an object of kind {kind!r}; expected one of "
                    f"{', '.join(sorted(_KINDS))}"
                )
            changed = valid.text != text and document["apiVersion"].startswith("resource.k8s.io/")
            yield Manifest(path.name, _KINDS[kind], document, changed)
