"""A CustomResourceDefinition with one of everything, and objects of it."""

from typing import Any

GROUP = "contract.example.com"


def definition(plural: str, scope: str = "Namespaced") -> dict[str, Any]:
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 8},
            "owner": {"type": "string", "enum": ["dray", "kube-scheduler"], "default": "dray"},
            "nested": {
                "type": "object",
                "default": {},
                "properties": {"ratio": {"type": "number", "default": 1.5}},
            },
            "names": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "amount": {"x-kubernetes-int-or-string": True},
            "when": {"type": "string", "format": "date-time"},
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
                },
            },
            "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
        },
    }
    status = {"type": "object", "properties": {"phase": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        ],
    }
    kind = plural[:-1].title()
    return {
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"plural": plural, "kind": kind, "singular": plural[:-1]},
            "versions": [version],
        },
    }


def widget(widgets: str, name: str, **spec: Any) -> dict[str, Any]:
    plural = widgets.rpartition("/")[2]
    kind = plural[:-1].title()
    meta = {"name": name}
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": meta, "spec": spec}
