"""Guards: a device without an attribute does not match, instead of failing the pod.

A guard is ``has(x)`` put before the smallest boolean term that reads ``x`` in a positive
place, that is below ``&&``, ``||`` and the branches of ``?:`` only. So ``!(x == "a")`` and
``x != "a"`` become ``has(x) && …`` as well: a device that lacks ``x`` is never selected by a
negation, as it would not be if Kubernetes had only called the term an error. Attributes that
are quantities written as strings get a second guard, ``isQuantity(x)``.
"""

from dray.api.names import DRIVER
from dray.cel.reads import Read, read_of, reads_of
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr
from dray.user_guide_form.paths import attribute, capacity, has
from dray.user_guide_form.vocabulary import ATTRIBUTES

Present = frozenset[tuple[str, str]]
"""Field and name of what is known to be present."""


def guarded(root: Expr, wanted: Present) -> tuple[Expr, list[Expr]]:
    """``root`` with guards for the reads in ``wanted``, and the guards that were added."""
    added: list[Expr] = []
    terms = _terms(root, wanted, frozenset(), added)
    return _chain("&&", terms, root), added


def _terms(node: Expr, wanted: Present, known: Present, added: list[Expr]) -> list[Expr]:
    """``node`` as terms of an ``&&`` chain, each behind its guards."""
    match node:
        case tree.Logical(operator="&&"):
            terms: list[Expr] = []
            for term in node.terms:
                terms += _terms(term, wanted, known, added)
                known |= _tested(terms)
            return terms
        case tree.Logical():
            before = _shared_guards(node, wanted, known, added)
            inside = known | _tested(before)
            alternatives = [
                _chain("&&", _terms(term, wanted, inside, added), term) for term in node.terms
            ]
            return [*before, _chain("||", alternatives, node)]
        case tree.Conditional() if _is_condition(node.then) and _is_condition(node.otherwise):
            before = _guards(node.condition, wanted, known, added)
            inside = known | _tested(before)
            then = _chain("&&", _terms(node.then, wanted, inside, added), node.then)
            otherwise = _chain("&&", _terms(node.otherwise, wanted, inside, added), node.otherwise)
            return [*before, tree.Conditional(node.condition, then, otherwise, place=node.place)]
        case _:
            return [*_guards(node, wanted, known, added), node]


def _shared_guards(node: Expr, wanted: Present, known: Present, added: list[Expr]) -> list[Expr]:
    """Guards that every alternative needs, stated once before all of them."""
    needed = _needed(node)
    guards = [
        guard
        for read in reads_of(node)
        if (read.field, read.name) in (wanted - known) & needed and read.domain == DRIVER
        for guard in _guards_of(read)
    ]
    added += guards
    return guards


def _needed(node: Expr) -> Present:
    """What must be present for ``node`` to be true."""
    match node:
        case tree.Logical(operator="&&"):
            return frozenset().union(*map(_needed, node.terms))
        case tree.Logical():
            return frozenset.intersection(*map(_needed, node.terms))
        case tree.Conditional():
            return _needed(node.condition)
        case _:
            return frozenset((read.field, read.name) for read in reads_of(node))


def _is_condition(node: Expr) -> bool:
    """Whether ``node`` is a bool by its form."""
    match node:
        case tree.Logical() | tree.Has() | tree.Literal(kind="bool"):
            return True
        case tree.Unary(operator=operator):
            return operator == "!"
        case tree.Binary(operator=operator):
            return operator in ("==", "!=", "<", "<=", ">", ">=", "in")
        case _:
            return False


def _guards(node: Expr, wanted: Present, known: Present, added: list[Expr]) -> list[Expr]:
    guards: list[Expr] = []
    if isinstance(node, tree.Has):
        return guards
    for read in reads_of(node):
        if (read.field, read.name) in wanted - known and read.domain == DRIVER:
            guards += _guards_of(read)
    added += guards
    return guards


def _guards_of(read: Read) -> list[Expr]:
    if read.field == "capacity":
        return [has(capacity(read.name))]
    path = attribute(read.name)
    if ATTRIBUTES.get(read.name) != "quantity":
        return [has(path)]
    return [has(path), tree.Call("isQuantity", (path,))]


def _tested(terms: list[Expr]) -> Present:
    reads = (read_of(term) for term in terms if isinstance(term, tree.Has))
    return frozenset((r.field, r.name) for r in reads if r is not None and r.domain == DRIVER)


def _chain(operator: str, terms: list[Expr], origin: Expr) -> Expr:
    if len(terms) == 1:
        return terms[0]
    return tree.Logical(operator, tuple(terms), place=origin.place)
