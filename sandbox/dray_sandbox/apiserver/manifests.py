"""Manifests applied at start: the CustomResourceDefinitions of a directory."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ruamel.yaml import YAML

from .context import system
from .operations import Operations
from .requests import plain
from .status import ApiError, Object


def _documents(directory: Path) -> Iterator[tuple[Path, Object]]:
    """YAML documents of a directory's files, in the order of their names."""
    for path in sorted([*directory.glob("*.yaml"), *directory.glob("*.yml")]):
        for document in YAML(typ="safe", pure=True).load_all(path.read_text()):
            if document:
                yield path, plain(document)


def _replaced(document: Object, _: Object | None) -> Object:
    return document


async def apply_directory(operations: Operations, directory: Path) -> None:
    """Create or replace the CRDs of a directory; ValueError names an invalid file."""
    resource = operations.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    if resource is None:
        raise AssertionError("CRDs are always served")
    for path, document in _documents(directory):
        if document.get("kind") != "CustomResourceDefinition":
            continue
        name = document["metadata"]["name"]
        context = system("crd-loader")
        try:
            if operations.store.get((resource.store_key, "", name)) is None:
                await operations.create(resource, "", document, context)
            else:
                version = operations.existing(resource, "", name)["metadata"]["resourceVersion"]
                document["metadata"]["resourceVersion"] = version
                await operations.update(resource, "", name, partial(_replaced, document), context)
        except ApiError as error:
            raise ValueError(f"{path}: {error.message}") from error
