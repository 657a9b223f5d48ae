"""The position of a node in the text of an expression."""

import msgspec


class SourceLocation(msgspec.Struct, frozen=True, gc=False):
    """The position of a node: its extent in the text, and the point that errors name.

    ``start``, ``end`` and ``point`` are offsets from 0 in code points of ``text``, the whole
    expression. ``point`` is the offset of the operator, dot or parenthesis, as in Kubernetes'
    messages.
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
