"""From the user guide's dialect of CEL to the dialect that Kubernetes accepts.

| user guide | DRA |
|---|---|
| ``device.attributes["model"]`` | ``device.attributes["tensor-fusion.ai.dra-driver"].model`` |
| ``device.capacity["vram"].AsApproximateFloat64()`` | ``….vram.asApproximateFloat()`` |
| the same on an attribute such as ``node_total_vram`` | ``quantity(….node_total_vram)…`` |
| an attribute that a device lacks | ``has(…) && …``: see ``guards`` |

The tree is rewritten, not the text. A selector that is already valid is returned byte for byte, so
a second translation changes nothing.
"""

from dataclasses import dataclass
from itertools import pairwise

from dray.cel.check.static_check import check_selector
from dray.cel.environment import DEFAULT, MINORS, Environment
from dray.cel.errors import CelTypeError
from dray.cel.syntax import tree
from dray.cel.syntax.lexer import tokens
from dray.cel.syntax.parser import parse
from dray.cel.syntax.tree import Expr
from dray.cel.syntax.unparser import unparse
from dray.user_guide_form.guards import guarded
from dray.user_guide_form.rewriter import Rewriter, is_bare_value, uses_user_guide_dialect

_MANY_COMPARISONS = 6
_ANY = (DEFAULT, Environment(MINORS[-1], list_attributes=True))
"""Servers that together accept everything that any server accepts."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A valid selector, the changes made to get it, and advice. Empty ``changes``: unchanged."""

    expression: str
    changes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def translate(expression: str, environment: Environment | None = None) -> Translation:
    """The valid form of a selector written in the user guide's dialect or in DRA's.

    ``environment`` is the server that has to accept it; without one, any server that dray knows. A
    selector that it already accepts is not changed, even if the user guide's dialect may be meant.

    Raises:
        CelSyntaxError: not CEL.
        CelTypeError: a selector in neither dialect.
        UserGuideDialectError: in the user guide's dialect, with an unknown name or an
            unconverted quantity.
    """
    root = parse(expression)
    environments = (environment,) if environment else _ANY
    fault = _fault(root, expression, environments)
    if fault is None:
        return Translation(expression)
    if not uses_user_guide_dialect(root):
        raise fault
    rewriter = Rewriter(expression)
    rewriter.refuse_bare_values(root)
    rewritten = rewriter.rewritten(root)
    if fault := _fault(rewritten, expression, environments):
        raise fault
    result, guards = guarded(rewritten, frozenset(rewriter.read))
    changes = list(rewriter.changes)
    for guard in dict.fromkeys(map(unparse, guards)):
        changes.append(f"added {guard}: a device without it must not match, nor stop the pod")
    return _written(result, expression, changes, _complexity(root))


def translate_value(expression: str) -> Translation:
    """The valid form of an expression that reads one value of a device and is no selector.

    Raises:
        CelSyntaxError: not CEL.
        UserGuideDialectError: an unknown name, or a method that the value doesn't have.
        ValueError: it is more than one read.
    """
    root = parse(expression)
    if not is_bare_value(root):
        raise ValueError(f"{expression!r} is not one read of a device")
    rewriter = Rewriter(expression)
    result = rewriter.rewritten(root)
    warning = f"{unparse(result)} is a value and no condition: a selector compares it with another"
    if not rewriter.changes:
        return Translation(expression, (), (warning,))
    return _written(result, expression, list(rewriter.changes), (warning,))


def _written(root: Expr, source: str, changes: list[str], warnings: tuple[str, ...]) -> Translation:
    """``source`` with its expression replaced by ``root``. Comments around it are kept."""
    found = tokens(source)
    start, end = found[0].start, found[-2].end
    inside = source[start:end]
    if _has_comments(inside):
        changes.append("dropped the comments inside: they stood in text that was rewritten")
    text = unparse(root, lines="\n" in inside)
    return Translation(source[:start] + text + source[end:], tuple(changes), warnings)


def _fault(root: Expr, source: str, environments: tuple[Environment, ...]) -> CelTypeError | None:
    """The first environment's error if every environment refuses the tree; None if one accepts
    it."""
    first: CelTypeError | None = None
    for environment in environments:
        try:
            check_selector(root, source, environment)
        except CelTypeError as error:
            first = first or error
        else:
            return None
    return first


def _complexity(root: Expr) -> tuple[str, ...]:
    """The user guide's third advice (§5.7): alternatives of conjunctions are hard to maintain."""
    comparisons = _comparisons(root)
    nested = isinstance(root, tree.Logical) and _alternates(root)
    if not nested or comparisons < _MANY_COMPARISONS:
        return ()
    return (
        f"{comparisons} comparisons in alternatives of conjunctions: too complex to maintain; "
        "prefer several pods or pools with simple selectors (user guide §5.7)",
    )


def _alternates(root: Expr) -> bool:
    if isinstance(root, tree.Logical) and root.operator == "||":
        return any(isinstance(t, tree.Logical) and t.operator == "&&" for t in root.terms)
    return isinstance(root, tree.Logical) and any(map(_alternates, root.terms))


def _comparisons(root: Expr) -> int:
    if isinstance(root, tree.Binary) and root.operator in ("==", "!=", "<", "<=", ">", ">=", "in"):
        return 1
    return sum(map(_comparisons, tree.children(root)))


def _has_comments(source: str) -> bool:
    found = tokens(source)
    gaps = [(a.end, b.start) for a, b in pairwise(found)]
    return any("//" in source[start:end] for start, end in gaps)
