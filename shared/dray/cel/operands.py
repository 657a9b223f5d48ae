"""Operands: literals, names, what stands in brackets, and the members that follow them."""

from abc import ABC, abstractmethod

from dray.cel import tree
from dray.cel.cursor import CONSTANTS, KEYWORDS, Cursor
from dray.cel.errors import CelSyntaxError
from dray.cel.lexer import NAME_STARTS, QUOTES, kind_of
from dray.cel.literals import LITERALS, LiteralError
from dray.cel.macros import MACRO_NAMES, MacroError, expand
from dray.cel.tree import Expr, Place

_RESERVED_WORDS = """
as break const continue else for function if import let loop package namespace return var void while
"""
RESERVED = frozenset(_RESERVED_WORDS.split())
"""Words that may be fields, but neither variables nor functions."""


class Operands(Cursor, ABC):
    """The part of the parser below the operators."""

    __slots__ = ()

    @abstractmethod
    def expression(self) -> Expr:
        """A whole expression, as it stands inside brackets."""

    def primary(self) -> Expr:
        text = self.texts[self.at]
        if text == "." or (text[:1] in NAME_STARTS and text[-1] not in QUOTES and text != "in"):
            return self._name()
        kind = kind_of(text)
        if kind in LITERALS:
            return self.literal(kind)
        if text not in ("(", "[", "{"):
            self.unexpected()
        start = self.starts[self.at]
        self.at += 1
        if text == "[":
            return self._list(start)
        if text == "{":
            return self._map(start)
        node = self.expression()
        self.expect(")")
        return tree.replace(node, place=self.since(start, node.place.point))

    def literal(self, kind: str, signs: int = 0) -> Expr:
        """The literal ahead, with the minus before it if it has one."""
        text, start = self.texts[self.at], self.starts[self.at - signs]
        self.at += 1
        try:
            value = LITERALS[kind]("-" + text if signs else text)
        except LiteralError as error:
            self.fail(str(error), start)
        return tree.Literal(kind, value, place=self.since(start, start))

    def _name(self) -> Expr:
        texts, starts, at = self.texts, self.starts, self.at
        start = starts[at]
        name = texts[at]
        dot = ""
        if name == ".":
            dot, at = ".", at + 1
            name = texts[at]
        elif name in CONSTANTS:
            self.at += 1
            kind, value = CONSTANTS[name]
            return tree.Literal(kind, value, place=self.since(start, start))
        self.at = at
        self.identifier()
        ahead = texts[at + 1]
        if ahead == "{" or (ahead == "." and self.has_braces):
            message = self._message(dot + name, start)
            if message is not None:
                return message
        if name in RESERVED:
            self.fail(f"reserved identifier: {name}", start)
        if ahead == "(":
            return self._call(dot + name, None, start)
        place = Place(start, starts[at] + len(name), starts[at], self.source)
        return tree.Ident(dot + name, place=place)

    def members(self, node: Expr) -> Expr:
        """``node`` with every ``.x``, ``.?x``, ``.x(…)``, ``[x]`` and ``[?x]`` that follows."""
        texts, starts, source, start = self.texts, self.starts, self.source, node.place.start
        while True:
            at = self.at
            text = texts[at]
            if text == ".":
                optional = texts[at + 1] == "?"
                self.at = at = at + 1 + optional
                field = self.field_name()
                if texts[at + 1] == "(" and not optional:
                    node = self._call(field, node, start)
                    continue
                end = starts[at] + len(texts[at])
                place = Place(start, end, starts[at - 1 - optional], source)
                node = tree.Select(node, field, optional, place=place)
            elif text == "[":
                optional = texts[at + 1] == "?"
                self.at = at + 1 + optional
                key = self.expression()
                self.expect("]")
                end = starts[self.at - 1] + 1
                place = Place(start, end, starts[at], source)
                node = tree.Index(node, key, optional, place=place)
            else:
                return node

    def _call(self, name: str, target: Expr | None, start: int) -> Expr:
        point = self.starts[self.at]
        self.at += 1
        arguments = list[Expr]()
        if not self.accept(")"):
            arguments.append(self.expression())
            while self.accept(","):
                arguments.append(self.expression())
            self.expect(")")
        call = tree.Call(name, tuple(arguments), target, place=self.since(start, point))
        if name not in MACRO_NAMES:
            return call
        try:
            return expand(call)
        except MacroError as error:
            raise CelSyntaxError(
                str(error), self.source, error.place.line, error.place.column
            ) from None

    def _list(self, start: int) -> Expr:
        items = list[tree.ListItem]()
        self._lone_comma("]")
        while not self.accept("]"):
            optional = self.accept("?")
            value = self.expression()
            items.append(tree.ListItem(value, optional, place=value.place))
            self._separator("]")
        return tree.ListLiteral(tuple(items), place=self.since(start, start))

    def _map(self, start: int) -> Expr:
        entries = list[tree.MapEntry]()
        self._lone_comma("}")
        while not self.accept("}"):
            optional = self.accept("?")
            key = self.expression()
            point = self.starts[self.at]
            self.expect(":")
            value = self.expression()
            place = self.since(key.place.start, point)
            entries.append(tree.MapEntry(key, value, optional, place=place))
            self._separator("}")
        return tree.MapLiteral(tuple(entries), place=self.since(start, start))

    def _message(self, name: str, start: int) -> Expr | None:
        """The message whose name's first part was just taken, or None where none follows."""
        texts, before = self.texts, self.at
        while texts[self.at] == "." and kind_of(texts[self.at + 1]) == "ident":
            if texts[self.at + 1] in KEYWORDS:
                break
            name += "." + texts[self.at + 1]
            self.at += 2
        if texts[self.at] != "{":
            self.at = before
            return None
        point = self.starts[self.at]
        self.at += 1
        fields = self._fields()
        return tree.Message(name, tuple(fields), place=self.since(start, point))

    def _fields(self) -> list[tree.MessageField]:
        fields = list[tree.MessageField]()
        self._lone_comma("}")
        while not self.accept("}"):
            optional = self.accept("?")
            start = self.starts[self.at]
            name = self.field_name()
            point = self.starts[self.at]
            self.expect(":")
            value = self.expression()
            place = self.since(start, point)
            fields.append(tree.MessageField(name, value, optional, place=place))
            self._separator("}")
        return fields

    def _lone_comma(self, closing: str) -> None:
        """The grammar's trailing comma may stand where nothing precedes it: ``[,]``."""
        if self.texts[self.at] == "," and self.texts[self.at + 1] == closing:
            self.at += 1

    def _separator(self, closing: str) -> None:
        """A comma, which may also stand before the closing bracket, or that bracket ahead."""
        if not self.accept(",") and self.texts[self.at] != closing:
            self.unexpected(f"{{'{closing}', ','}}")
