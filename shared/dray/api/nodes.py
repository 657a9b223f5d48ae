"""The nodes that can use a slice, a device or an allocation."""

from typing import Final

import msgspec

NAME_FIELD: Final = "metadata.name"


class NodeSelectorRequirement(msgspec.Struct, frozen=True, gc=False):
    """One ``NodeSelectorRequirement``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(msgspec.Struct, frozen=True, gc=False):
    """One ``NodeSelectorTerm``: everything in it must hold; an empty one matches nothing."""

    expressions: tuple[NodeSelectorRequirement, ...] = ()
    """Requirements on labels."""
    fields: tuple[NodeSelectorRequirement, ...] = ()
    """Requirements on ``metadata.name``."""


class NodeSelector(msgspec.Struct, frozen=True, gc=False):
    """``NodeSelector``: one of its terms must hold."""

    terms: tuple[NodeSelectorTerm, ...] = ()

    @property
    def only_node(self) -> str:
        """The node, if the selector names exactly one and nothing else; else empty."""
        if len(self.terms) != 1 or self.terms[0].expressions or len(self.terms[0].fields) != 1:
            return ""
        one = self.terms[0].fields[0]
        names_it = (one.key, one.operator, len(one.values)) == (NAME_FIELD, "In", 1)
        return one.values[0] if names_it else ""


class NodeSelection(msgspec.Struct, frozen=True, gc=False):
    """The nodes that can use something: one, all, or those selected."""

    node: str = ""
    all_nodes: bool = False
    selector: NodeSelector | None = None

    @property
    def is_stated(self) -> bool:
        """Whether nodes are stated."""
        return bool(self.node or self.all_nodes or self.selector is not None)


NOWHERE: Final = NodeSelection()
"""No node is stated: no node can use such a slice or device."""
