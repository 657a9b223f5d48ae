"""Selectors as conditions on one column each, and gates over them; equal ones are shared.

A selector is the ``&&`` of its clauses. A clause that reads one property is one condition. One
that reads several is taken apart at ``&&``, ``||``, ``!`` and ``?:``; what then still reads
several is decided by the exact evaluator, once per distinct combination of their values.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from dray.cel import tree
from dray.cel.columnar.exact import Exact
from dray.cel.columnar.facts import Path
from dray.cel.columnar.forms import Form, Presence, form_of
from dray.cel.columnar.gates import Gates
from dray.cel.columnar.reads import paths_of, text_of
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
    is_plain: bool
    """Whether no value can make it dear."""
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

    @property
    def is_plain(self) -> bool:
        """Whether all conditions are."""
        return all(one.is_plain for one in self.inputs)


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

    def clauses(self, terms: Iterable[Expr], exact: Exact) -> tuple[Part, ...] | None:
        """Parts for the clauses of a selector, each with one more user.

        None where a device could make the selector dear: then only the whole of it can tell.
        """
        texts = [(term, text_of(term)) for term in terms]
        new = {text: form_of(term) for term, text in texts if text not in self._parts}
        is_plain = all(map(_is_plain, new.values())) and all(
            self._parts[text].is_plain for _, text in texts if text not in new
        )
        if not is_plain and not exact.is_bounded:
            return None
        return tuple([self._part(term, text, exact, new.get(text)) for term, text in texts])

    def whole(self, expression: Expr, exact: Exact) -> Part:
        """A part that asks the exact evaluator about all of ``expression``, with one more user."""
        key = _WHOLE + text_of(expression)
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = self._condition(expression, key, exact, None, whole=True)
        found.uses += 1
        return found

    def _part(self, expression: Expr, text: str, exact: Exact, form: Form | None) -> Part:
        found = self._parts.get(text)
        if found is None:
            if form is None and _is_better_apart(expression):
                found = self._gate(expression, text, exact)
            else:
                found = self._condition(expression, text, exact, form, whole=False)
            self._parts[text] = found
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

    def _condition(
        self, expression: Expr, key: str, exact: Exact, form: Form | None, *, whole: bool
    ) -> Condition:
        verdicts = self.verdicts_on(self._paths(expression, form))
        node = self.gates.node()
        position = verdicts.add(expression, node, exact, form, whole=whole)
        return Condition(key, text_of(expression), node, verdicts, position, _is_plain(form))

    def _paths(self, expression: Expr, form: Form | None) -> tuple[Path, ...]:
        """What a condition reads: what its subject does, for constants read nothing."""
        if form is None:
            return paths_of(expression)
        if isinstance(form, Presence):
            return (form.path,)
        subject = text_of(form.subject)
        if subject not in self._subjects:
            if len(self._subjects) >= _SUBJECTS_KEPT:
                self._subjects.clear()
            self._subjects[subject] = paths_of(form.subject)
        return self._subjects[subject]

    def _gate(self, expression: Expr, text: str, exact: Exact) -> Gate:
        operator, operands = _opened(expression)
        inputs = tuple(
            self._part(operand, text_of(operand), exact, form_of(operand)) for operand in operands
        )
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


def _is_plain(form: Form | None) -> bool:
    """Whether it is a property, and nothing made of it, that is looked at."""
    if isinstance(form, Presence):
        return True
    return form is not None and "(" not in text_of(form.subject)


def _is_better_apart(expression: Expr) -> bool:
    """Whether it joins conditions on several columns, or such as are decided all at once."""
    operator, _ = _opened(expression)
    return bool(operator) and (len(paths_of(expression)) != 1 or _is_all_forms(expression))


def _is_all_forms(expression: Expr) -> bool:
    operator, operands = _opened(expression)
    if operator:
        return all(map(_is_all_forms, operands))
    return form_of(expression) is not None
