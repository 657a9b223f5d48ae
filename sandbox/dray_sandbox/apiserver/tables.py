"""`meta.k8s.io/v1` Tables, which kubectl requests."""

from collections.abc import Sequence

from .columns import TableColumn, columns_of
from .resources import ApiResource
from .status import Object


def table(
    resource: ApiResource,
    items: Sequence[Object],
    meta: Object,
    include: str = "Metadata",
    *,
    with_columns: bool = True,
) -> Object:
    """Rows for `items`; `include` is None, Metadata or Object: what each row contains."""
    columns = columns_of(resource)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [_definition(column) for column in columns] if with_columns else None,
        "rows": [_row(item, columns, include) for item in items],
    }


def _definition(column: TableColumn) -> Object:
    return {
        "name": column.name,
        "type": column.kind,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _row(item: Object, columns: Sequence[TableColumn], include: str) -> Object:
    row: Object = {"cells": [column.cell(item) for column in columns]}
    if include == "Object":
        row["object"] = item
    elif include != "None":
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": item["metadata"],
        }
    return row
