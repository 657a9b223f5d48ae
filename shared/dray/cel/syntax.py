"""CEL text to tree: the grammar that the Kubernetes API server accepts.

Operators are resolved by precedence with a stack, chains of ``&&`` and ``||`` and of members
in loops, so that only brackets and branches recurse; their depth has the limits of cel-go.
Hostile text is an error with a position and neither a crash nor a hang.
"""

from typing import Final

from dray.cel import tree
from dray.cel.cursor import LEVELS, MAX_NESTING
from dray.cel.depth import make_room
from dray.cel.environment import DEFAULT, Environment
from dray.cel.errors import CelSyntaxError
from dray.cel.lexer import kind_of, position
from dray.cel.operands import RESERVED, Operands
from dray.cel.tree import Expr, Place

__all__ = ["MAX_LENGTH", "MAX_NESTING", "RESERVED", "parse"]

MAX_LENGTH: Final = 100_000
"""Code points; cel-go's limit. What is written into an object has a lower one, in bytes."""


def parse(source: str, environment: Environment = DEFAULT) -> Expr:
    """The tree of ``source``, as the grammar of ``environment`` reads it.

    Raises:
        CelSyntaxError: not CEL, longer than ``MAX_LENGTH``, or nested too deeply.
    """
    if len(source) > MAX_LENGTH:
        reason = "expression code point size exceeds limit: "
        reason += f"size: {len(source)}, limit {MAX_LENGTH}"
        raise CelSyntaxError(reason, source[:80], 1, 1)
    if not source.isascii():
        _refuse_surrogates(source)
    return _Parser(source, environment).whole()


def _refuse_surrogates(source: str) -> None:
    try:
        source.encode()
    except UnicodeEncodeError as error:
        place = position(source, error.start)
        shown = source.encode(errors="replace").decode()
        raise CelSyntaxError("Syntax error: not valid Unicode", shown, *place) from None


class _Parser(Operands):
    """One text on its way to a tree."""

    __slots__ = ()

    def whole(self) -> Expr:
        texts = self.texts
        make_room(texts.count("(") + texts.count("[") + texts.count("{") + texts.count("?"))
        node = self.expression()
        if texts[self.at]:
            self.unexpected("<EOF>")
        if len(texts) > MAX_NESTING:
            self._check_depth(node)
        return node

    def _check_depth(self, root: Expr) -> None:
        """cel-go counts operators and members, but neither ``&&``, ``||``, ``!`` nor brackets."""
        ahead = [(root, 0)]
        while ahead:
            node, depth = ahead.pop()
            depth += _is_counted(node)
            if depth > MAX_NESTING:
                self.fail("max recursion depth exceeded", node.place.start)
            ahead += [(child, depth) for child in tree.children(node)]

    def expression(self) -> Expr:
        """``a || b ? c : d``."""
        self.expressions += 1
        if self.expressions > MAX_NESTING:
            self.too_deep()
        node = self._alternatives()
        if self.texts[self.at] == "?":
            point = self.starts[self.at]
            self.at += 1
            then = self._alternatives()
            self.expect(":")
            otherwise = self.expression()
            place = self.since(node.place.start, point)
            node = tree.Conditional(node, then, otherwise, place=place)
        self.expressions -= 1
        return node

    def _alternatives(self) -> Expr:
        """``a && b || c``, each a relation or what binds closer."""
        relations, sums = self.relations, self.sums
        if relations >= MAX_NESTING or sums >= MAX_NESTING:
            self.too_deep()
        self.relations, self.sums = relations + 1, sums + 1
        node = self._conjunction()
        if self.texts[self.at] == "||":
            terms = [node]
            while self.accept("||"):
                terms.append(self._conjunction())
            node = self._chain("||", terms)
        self.relations, self.sums = relations, sums
        return node

    def _conjunction(self) -> Expr:
        texts = self.texts
        node = self._operand()
        if texts[self.at] in LEVELS:
            node = self._binary(node)
        if texts[self.at] != "&&":
            return node
        terms = [node]
        while texts[self.at] == "&&":
            self.at += 1
            node = self._operand()
            if texts[self.at] in LEVELS:
                node = self._binary(node)
            terms.append(node)
        return self._chain("&&", terms)

    def _chain(self, operator: str, terms: list[Expr]) -> Expr:
        """A chain; it is named by the operator at the root of cel-go's balanced tree."""
        middle = terms[(len(terms) - 1) // 2].place.end
        point = self.source.find(operator, middle)
        place = Place(terms[0].place.start, terms[-1].place.end, point, self.source)
        return tree.Logical(operator, tuple(terms), place=place)

    def _binary(self, first: Expr) -> Expr:
        """Relations, sums and products after their first operand."""
        texts, relations, sums = self.texts, self.relations, self.sums
        operands, operators = [first], list[int]()
        while level := LEVELS.get(texts[self.at]):
            while operators and LEVELS[texts[operators[-1]]] >= level:
                self._reduce(operands, operators)
            operators.append(self.at)
            self.at += 1
            related = LEVELS[texts[operators[0]]] == 1
            self.relations = relations + related
            self.sums = sums + len(operators) - related
            if self.relations > MAX_NESTING or self.sums > MAX_NESTING:
                self.too_deep()
            operands.append(self._operand())
        while operators:
            self._reduce(operands, operators)
        self.relations, self.sums = relations, sums
        return operands[0]

    def _reduce(self, operands: list[Expr], operators: list[int]) -> None:
        at, right = operators.pop(), operands.pop()
        left = operands[-1]
        place = Place(left.place.start, right.place.end, self.starts[at], self.source)
        operands[-1] = tree.Binary(self.texts[at], left, right, place=place)

    def _operand(self) -> Expr:
        """Signs, one primary, and what follows it: ``!a.b[c].d(e)``."""
        texts = self.texts
        sign = texts[self.at]
        if sign != "!" and sign != "-":
            return self.members(self.primary())
        first = self.at
        while texts[self.at] == sign:
            self.at += 1
        count = self.at - first
        kind = kind_of(texts[self.at])
        if sign == "-" and count == 1 and kind in ("int", "double"):
            return self.members(self.literal(kind, 1))
        node = self.members(self._negative() if texts[self.at] == "-" else self.primary())
        if count % 2 == 0:
            return node
        start = self.starts[first]
        return tree.Unary(sign, node, place=self.since(start, start))

    def _negative(self) -> Expr:
        """The number after ``!-``: nothing else may have a sign there."""
        kind = kind_of(self.texts[self.at + 1])
        if kind not in ("int", "double"):
            self.unexpected()
        self.at += 1
        return self.literal(kind, 1)


def _is_counted(node: Expr) -> bool:
    match node:
        case tree.Binary() | tree.Select() | tree.Has() | tree.Index() | tree.Conditional():
            return True
        case tree.Macro() | tree.Bind():
            return True
        case tree.Call():
            return node.target is not None
        case _:
            return False
