"""Guards: a device without an attribute does not match, instead of failing the pod.

A guard is ``has(x)`` before the smallest boolean term that reads ``x`` in a positive place, that
is, only below ``&&``, ``||`` and the branches of ``?:``. So ``!(x == "a")`` and ``x != "a"`` also
become ``has(x) && …``: a negation never selects a device that lacks ``x``. That agrees with
Kubernetes, where the term is an error and does not select the device, either. Attributes that are
quantities written as strings get a second guard, ``isQuantity(x)``.
"""

from dray.api.names import DRIVER
from dray.cel.reads import Read, read_of, reads_of
from dray.cel.syntax import tree
from dray.cel.syntax.tree import Expr
from dray.user_guide_form.paths import attribute, capacity, has
from dray.user_guide_form.vocabulary import ATTRIBUTES

Present = frozenset[tuple[str, str]]
"""Field and name of each read that is known to be present."""


def guarded(root: Expr, wanted: Present) -> tuple[Expr, list[Expr]]:
    """``root`` with guards for the reads in ``wanted``, and the added guards."""
    added: list[Expr] = []
    terms = _terms(root, wanted, frozenset(), added)
    return _chain("&&", terms, root), added


def _terms(node: Expr, wanted: Present, known: Present, added: list[Expr]) -> list[Expr]:
    """``node`` as terms of an ``&&`` chain, each after its guards."""
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
    """Guards that every alternative needs. They are put once before all alternatives."""
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
    """The reads that must be present for ``node`` to be true."""
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
    """Whether the form of ``node`` shows that it is a bool."""
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
