"""The nodes that can use a slice or a device."""

from dataclasses import dataclass, field
from typing import Final

NAME_FIELD: Final = "metadata.name"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One ``NodeSelectorRequirement``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Term:
    """One ``NodeSelectorTerm``: everything in it must hold; an empty one matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    """About labels."""
    fields: tuple[Requirement, ...] = ()
    """About ``metadata.name``."""


@dataclass(frozen=True, slots=True)
class NodeSelector:
    """``NodeSelector``: one of its terms must hold."""

    terms: tuple[Term, ...] = ()

    @property
    def only_node(self) -> str:
        """The node, if the selector names exactly one and nothing else; else empty."""
        if len(self.terms) != 1 or self.terms[0].expressions or len(self.terms[0].fields) != 1:
            return ""
        one = self.terms[0].fields[0]
        names_it = (one.key, one.operator, len(one.values)) == (NAME_FIELD, "In", 1)
        return one.values[0] if names_it else ""


@dataclass(frozen=True, slots=True)
class Reach:
    """The nodes that can use something: one, all, or those selected."""

    node: str = ""
    all_nodes: bool = False
    selector: NodeSelector | None = None

    @property
    def is_stated(self) -> bool:
        """Whether nodes are stated."""
        return bool(self.node or self.all_nodes or self.selector is not None)


NOWHERE: Final = Reach()
"""No node is stated: such a slice or device can be used from no node."""


@dataclass(frozen=True, slots=True)
class Node:
    """The fields of a node that decide whether it can use a device."""

    name: str
    labels: dict[str, str] = field(default_factory=dict)
