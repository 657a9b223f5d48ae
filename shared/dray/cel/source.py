"""Where a node of the tree stands in the text of an expression."""

import msgspec


class SourceLocation(msgspec.Struct, frozen=True, gc=False):
    """Where a node stands: its extent in the text, and the point that errors name.

    ``start``, ``end`` and ``point`` are offsets from 0 in code points of ``text``, the whole
    expression. ``point`` is that of the operator, dot or parenthesis, which Kubernetes' messages
    point at too.
    """

    start: int
    end: int
    point: int
    text: str

    @property
    def line(self) -> int:
        """The line of ``point``, from 1."""
        return self.text.count("\n", 0, self.point) + 1

    @property
    def column(self) -> int:
        """The column of ``point``, in code points from 1."""
        return self.point - self.text.rfind("\n", 0, self.point)


NOWHERE = SourceLocation(0, 0, 0, "")
