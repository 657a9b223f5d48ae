"""Rules of a kind: defaults, protected parts, validation."""

from collections.abc import Mapping, Sequence

from dray.api.equality import strictly_equal

from . import metadata, types
from .resources import ApiResource
from .status import FieldError, Object, invalid
from .store import copy


class ResourceRules:
    """The rules of an ordinary built-in kind; other kinds override methods."""

    has_status: bool = False
    """Does the kind have a status subresource?"""

    def __init__(self, resource: ApiResource) -> None:
        self.resource = resource
        self.namespace_labels: Mapping[str, str] = {}
        """Labels of the namespace of the object at hand."""

    def read(self, obj: Object, *, strict: bool) -> tuple[Object, list[str]]:
        """The object as it would be stored, with defaults; and the dropped fields."""
        result, unknown = types.decode(
            obj,
            self.resource.table,
            what=self.resource.kind,
            version=self.resource.version,
            strict=strict,
        )
        result.setdefault("metadata", {})
        self.default(result)
        return result, unknown

    def default(self, obj: Object) -> None:
        """Fill in the API's defaults."""

    def prepare_create(self, obj: Object) -> None:
        """Reset the parts that a client can't set at creation."""
        if self.has_status:
            obj.pop("status", None)
        if self.resource.tracks_generation:
            obj["metadata"]["generation"] = 1

    def prepare_update(self, new: Object, old: Object) -> None:
        """Keep the status in an update of the object."""
        if self.has_status:
            _take(new, old, "status")
        if self.resource.tracks_generation and not strictly_equal(
            self.spec_of(new), self.spec_of(old)
        ):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def spec_of(self, obj: Object) -> Object:
        """The part whose changes increase the generation."""
        return {k: v for k, v in obj.items() if k not in ("metadata", "status")}

    def prepare_status(self, new: Object, old: Object) -> None:
        """Keep everything except the status in an update of the status."""
        for field in [*new, *old]:
            if field not in ("status", "metadata"):
                _take(new, old, field)
        _keep_metadata(new, old)

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        """Findings about a new object beyond its metadata."""
        return []

    def validate_update(self, new: Object, old: Object) -> Sequence[FieldError]:
        """Findings about a change."""
        return self.validate_create(new)

    def validate_status(self, new: Object, old: Object) -> Sequence[FieldError]:
        """Findings about a change of the status."""
        return []

    def metadata_errors(self, meta: Object) -> list[FieldError]:
        """Findings about metadata."""
        built_in = self.resource.schema is None
        return metadata.errors(meta, metadata.name_rule(self.resource.plural), built_in=built_in)


class WithStatus(ResourceRules):
    """A kind with a status subresource."""

    has_status = True


def _take(new: Object, old: Object, field: str) -> None:
    new.pop(field, None)
    if field in old:
        new[field] = old[field]


def _keep_metadata(new: Object, old: Object) -> None:
    """Reset the metadata, except managedFields: of the sent one, only the version counts."""
    sent = new["metadata"]
    new["metadata"] = copy(old["metadata"])
    if "managedFields" in sent:
        new["metadata"]["managedFields"] = sent["managedFields"]


def take_metadata(new: Object, sent: Object, fields: Sequence[str]) -> None:
    """For kinds whose status updates may carry some of the metadata."""
    for field in fields:
        new["metadata"].pop(field, None)
        if field in sent:
            new["metadata"][field] = sent[field]


def immutable(field: str, new: object, old: object) -> list[FieldError]:
    """The finding about a change of an immutable field."""
    if strictly_equal(new, old):
        return []
    return [invalid(field, new, "field is immutable")]
