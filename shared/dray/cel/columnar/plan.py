"""Selectors as conditions on one column each, and gates over them; equal ones are shared.

A selector is the ``&&`` of its clauses. A clause that reads one property is one condition. One
that reads several is taken apart at ``&&``, ``||``, ``!`` and ``?:``; what then still reads
several is decided by the exact evaluator, once per distinct combination of their values.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dray.cel import tree
from dray.cel.columnar.exact import Exact
from dray.cel.columnar.facts import Path
from dray.cel.columnar.forms import comparison_of
from dray.cel.columnar.gates import Gates
from dray.cel.columnar.reads import paths_of, presence_of, text_of
from dray.cel.columnar.verdicts import Verdicts
from dray.cel.tree import Expr


@dataclass(slots=True, eq=False)
class Condition:
    """A node decided by the verdicts on one column."""

    key: str
    text: str
    """As written."""
    node: int
    verdicts: Verdicts
    position: int
    uses: int = 0


@dataclass(slots=True, eq=False)
class Gate:
    """A node decided by others."""

    key: str
    text: str
    node: int
    operator: str
    inputs: "tuple[Part, ...]"
    uses: int = 0


Part = Condition | Gate
_SUBJECTS_KEPT: Final = 4096


@dataclass(slots=True)
class Plans:
    """The parts of all selectors in use, by their text."""

    verdicts_on: Callable[[tuple[Path, ...]], Verdicts]
    gates: Gates = field(default_factory=Gates)
    dropped: Callable[[Verdicts], None] = lambda verdicts: None
    """Told of a column's verdicts that no condition is left of."""
    _parts: dict[str, Part] = field(default_factory=dict)
    _subjects: dict[str, tuple[Path, ...]] = field(default_factory=dict)

    def part(self, expression: Expr, exact: Exact, *, whole: bool = False) -> Part:
        """The part that decides ``expression``, with one more user.

        ``whole`` keeps it in one piece, so that the exact evaluator sees all of it.
        """
        text = text_of(expression)
        key = _WHOLE + text if whole else text
        found = self._parts.get(key)
        if found is None:
            splits = not whole and _is_better_apart(expression)
            if splits:
                found = self._gate(expression, text, exact)
            else:
                found = self._condition(expression, key, exact, whole=whole)
            self._parts[key] = found
        found.uses += 1
        return found

    def release(self, part: Part) -> None:
        """One user less; a part without users goes."""
        part.uses -= 1
        if part.uses:
            return
        del self._parts[part.key]
        self.gates.drop(part.node)
        if isinstance(part, Gate):
            for one in part.inputs:
                self.release(one)
            return
        part.verdicts.remove(part.position)
        if not len(part.verdicts):
            self.dropped(part.verdicts)

    def _condition(self, expression: Expr, key: str, exact: Exact, *, whole: bool) -> Condition:
        verdicts = self.verdicts_on(self._paths(expression))
        node = self.gates.node()
        position = verdicts.add(expression, node, exact, whole=whole)
        return Condition(key, text_of(expression), node, verdicts, position)

    def _paths(self, expression: Expr) -> tuple[Path, ...]:
        """What a condition reads; constants read nothing, so that of a comparison is known soon."""
        comparison = comparison_of(expression)
        if comparison is None:
            return paths_of(expression)
        subject = text_of(comparison.subject)
        if subject not in self._subjects:
            if len(self._subjects) >= _SUBJECTS_KEPT:
                self._subjects.clear()
            self._subjects[subject] = paths_of(comparison.subject)
        return self._subjects[subject]

    def _gate(self, expression: Expr, text: str, exact: Exact) -> Gate:
        operator, operands = _opened(expression)
        inputs = tuple(self.part(operand, exact) for operand in operands)
        node = self.gates.gate(operator, [one.node for one in inputs])
        return Gate(text, text, node, operator, inputs)


_OPTIONAL: Final = re.compile(r"[.\[]\s*\?")
"""``.?`` or ``[?``: ``has`` of an optional gives something else as a branch than it does alone."""
_WHOLE = "whole: "
"""Before the text of what must not be taken apart; no expression begins so."""


def _opened(expression: Expr) -> tuple[str, tuple[Expr, ...]]:
    """The operator of a node that joins conditions, and these; no operator for other nodes."""
    match expression:
        case tree.Logical(operator=operator, terms=terms):
            return operator, terms
        case tree.Unary(operator="!", operand=operand):
            return "!", (operand,)
        case tree.Conditional(condition=condition, then=then, otherwise=otherwise):
            if _OPTIONAL.search(text_of(then)) or _OPTIONAL.search(text_of(otherwise)):
                return "", ()
            return "?:", (condition, then, otherwise)
        case _:
            return "", ()


def _is_better_apart(expression: Expr) -> bool:
    """Whether it joins conditions on several columns, or such as are decided all at once."""
    operator, _ = _opened(expression)
    return bool(operator) and (len(paths_of(expression)) != 1 or _is_all_forms(expression))


def _is_all_forms(expression: Expr) -> bool:
    operator, operands = _opened(expression)
    if operator:
        return all(map(_is_all_forms, operands))
    return comparison_of(expression) is not None or presence_of(expression) is not None
