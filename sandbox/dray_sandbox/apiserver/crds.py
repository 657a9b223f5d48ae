"""CustomResourceDefinitions: their rules, their resources, and the rules of custom resources."""

from collections.abc import Sequence
from typing import Any

from . import metadata, structural, types
from .fields.parts import METADATA
from .resources import ApiResource
from .rules import ResourceRules, WithStatus
from .status import FieldError, Object, bad_request, immutable_error, invalid, required
from .store import copy


class CrdRules(WithStatus):
    """CustomResourceDefinition."""

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        names = spec.setdefault("names", {})
        if names.get("kind"):
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", names["kind"] + "List")
        spec.setdefault("conversion", {"strategy": "None"})
        obj.setdefault("status", {})

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        # Served with a delay, as on a real server: see `GarbageCollector`.
        obj["status"] = {
            "acceptedNames": {"plural": "", "kind": ""},
            "conditions": None,
            "storedVersions": [v["name"] for v in obj["spec"]["versions"] if v.get("storage")],
        }

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        spec = obj["spec"]
        names = spec["names"]
        found = [
            required(f"spec.{where}")
            for where, value in (
                ("group", spec.get("group")),
                ("scope", spec.get("scope")),
                ("names.plural", names.get("plural")),
                ("names.kind", names.get("kind")),
                ("versions", spec.get("versions")),
            )
            if not value
        ]
        wanted = f"{names.get('plural', '')}.{spec.get('group', '')}"
        if obj["metadata"].get("name") != wanted:
            text = 'must be spec.names.plural+"."+spec.group'
            found.append(invalid("metadata.name", obj["metadata"].get("name"), text))
        return found + _versions(spec.get("versions") or [])

    def validate_update(self, new: Object, old: Object) -> Sequence[FieldError]:
        found = list(self.validate_create(new))
        for field in ("group", "scope"):
            if new["spec"].get(field) != old["spec"].get(field):
                found.append(immutable_error(f"spec.{field}", new["spec"].get(field)))
        return found


def _versions(versions: list[Object]) -> list[FieldError]:
    found: list[FieldError] = []
    if versions and sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        found.append(invalid("spec.versions", [v.get("name") for v in versions], text))
    for index, version in enumerate(versions):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            where = f"spec.versions[{index}].schema.openAPIV3Schema"
            found.append(required(where, "schemas are required"))
        elif schema.get("type") != "object":
            where = f"spec.versions[{index}].schema.openAPIV3Schema.type"
            found.append(required(where, "must not be empty at the root"))
    return found


def established(crd: Object) -> Object:
    """The status of a CRD that is served."""
    when = metadata.now()
    condition = {"status": "True", "lastTransitionTime": when}
    return {
        "acceptedNames": copy(crd["spec"]["names"]),
        "conditions": [
            {
                "type": "NamesAccepted",
                "reason": "NoConflicts",
                "message": "no conflicts found",
                **condition,
            },
            {
                "type": "Established",
                "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
                **condition,
            },
        ],
        "storedVersions": [v["name"] for v in crd["spec"]["versions"] if v.get("storage")],
    }


def is_established(crd: Object) -> bool:
    """Is the CRD served?"""
    conditions = (crd.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)


def resources_of(crd: Object) -> list[ApiResource]:
    """One resource per served version."""
    if not is_established(crd):
        return []
    spec = crd["spec"]
    names = spec["names"]
    return [
        ApiResource(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            spec["scope"] == "Namespaced",
            tuple(names.get("shortNames") or ()),
            tuple(names.get("categories") or ()),
            ("status",) if "status" in (version.get("subresources") or {}) else (),
            unconditional_update=False,
            tracks_generation=True,
            field_selectors=tuple(
                entry["jsonPath"].lstrip(".") for entry in version.get("selectableFields") or []
            ),
            strategic=False,
            served_since=int(crd["metadata"]["resourceVersion"]),
            crd=crd,
            schema=version["schema"]["openAPIV3Schema"],
        )
        for version in spec["versions"]
        if version.get("served")
    ]


class CustomRules(ResourceRules):
    """A custom resource, validated by its schema."""

    def __init__(self, resource: ApiResource) -> None:
        super().__init__(resource)
        self.has_status = "status" in resource.subresources
        self._schema: Object = resource.schema or {}

    def read(self, obj: Object, *, strict: bool) -> tuple[Object, list[str]]:
        unknown: list[str] = []
        body = {k: v for k, v in obj.items() if k not in _TYPE_AND_METADATA}
        result: Object = {k: obj[k] for k in ("apiVersion", "kind") if k in obj}
        try:
            meta = types.read(obj.get("metadata") or {}, METADATA, unknown, "metadata")
        except types.WrongType as error:
            raise bad_request(f"error decoding {self.resource.kind}: {error}") from error
        result["metadata"] = meta
        pruned: dict[str, Any] = structural.prune(body, self._schema, unknown)
        if unknown and strict:
            named = ", ".join(f'unknown field "{name}"' for name in sorted(unknown))
            kind, version = self.resource.kind, self.resource.version
            raise bad_request(
                f'{kind} in version "{version}" cannot be handled as a {kind}: '
                f"strict decoding error: {named}"
            )
        structural.drop_nulls(pruned, self._schema)
        structural.default(pruned, self._schema)
        return result | pruned, unknown

    def prepare_status(self, new: Object, old: Object) -> None:
        super().prepare_status(new, old)
        if "status" in new and new["status"] is None:
            del new["status"]

    def spec_of(self, obj: Object) -> Object:
        outside = ("metadata", "status") if self.has_status else ("metadata",)
        return {k: v for k, v in obj.items() if k not in outside}

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        return self._findings(obj, None)

    def validate_update(self, new: Object, old: Object) -> Sequence[FieldError]:
        return self._findings(new, old)

    def validate_status(self, new: Object, old: Object) -> Sequence[FieldError]:
        return self._findings(new, old)

    def _findings(self, obj: Object, old: Object | None) -> list[FieldError]:
        plain = {key: value for key, value in obj.items() if key != "metadata"}
        schema = {key: value for key, value in self._schema.items() if key != "properties"}
        properties = self._schema.get("properties") or {}
        schema["properties"] = {k: v for k, v in properties.items() if k != "metadata"}
        found = structural.validate(plain, schema) + structural.list_errors(plain, schema)
        return found or structural.rule_errors(plain, old, schema)


_TYPE_AND_METADATA = ("apiVersion", "kind", "metadata")
