"""Base classes of the models of custom resources."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from dray.kube.ports import Resource

Owner = Literal["dray", "kube-scheduler"]
"""The component that decides about a pod or binds it."""


class ResourceFields(BaseModel):
    """A part of a custom resource: snake_case here, camelCase in the manifest."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True
    )

    def manifest(self) -> dict[str, Any]:
        """The fields that were set, with their names in the manifest."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)


class PrinterColumn(BaseModel):
    """An ``additionalPrinterColumns`` entry."""

    model_config = ConfigDict(frozen=True)

    name: str
    path: str
    kind: str = "string"
    wide: bool = False


class CustomResource(ResourceFields):
    """A whole object. Subclasses define its kind and the columns of ``kubectl get``."""

    RESOURCE: ClassVar[Resource]
    SINGULAR: ClassVar[str]
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ()
    """Short names for kubectl. dray's own kinds are also in the category ``dray``: ``kubectl get
    dray``."""
    IS_OWN: ClassVar[bool] = True
    """Whether dray defines the kind. If another project does, ``spec`` may be absent."""
    HAS_STATUS_SUBRESOURCE: ClassVar[bool] = True
    COLUMNS: ClassVar[tuple[PrinterColumn, ...]] = ()


class Condition(ResourceFields):
    """One aspect of the object's state, as meta/v1 defines it."""

    type: Annotated[str, Field(max_length=316)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    message: Annotated[str, Field(max_length=32768)] = ""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    observed_generation: int | None = None


Conditions = Annotated[
    list[Condition],
    Field(
        description="Latest observations, one per type.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    ),
]
