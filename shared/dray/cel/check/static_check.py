"""The static check of an expression: the type of every node and the overloads of every call.

The rules are those of cel-go with the options that Kubernetes sets: aggregate literals are
homogeneous, and numbers of different kinds can be compared.
"""

from dray.cel.check.check_result import CheckedExpr
from dray.cel.check.checker import Checker
from dray.cel.check.validators import refused_constants, validate
from dray.cel.environment import DEFAULT, Environment
from dray.cel.errors import CelTypeError, CompileIssue, all_of, first_of
from dray.cel.syntax.tree import Expr
from dray.cel.types import types
from dray.cel.types.device_types import result_types


def _refused_variables(checked: CheckedExpr) -> list[CompileIssue]:
    """Variables that hold types: cel-go wrongly takes their names for names of types."""
    return [
        CompileIssue(
            f"program instantiation failed: reference to undefined type: {name}", node.place
        )
        for node in checked.literals.variables
        if checked.type_of(node).kind == "type"
        and (name := node.name.removeprefix(".")) not in types.TYPE_NAMES
    ]


def check(root: Expr, source: str, environment: Environment = DEFAULT) -> CheckedExpr:
    """Check ``root``, parsed from ``source``. The result may have any type.

    Raises:
        CelTypeError: undeclared name, unknown field, no matching overload, bad literal.
    """
    checker = Checker(source, environment)
    result = checker.type_of(root)
    if checker.errors:
        raise all_of(checker.errors, source)
    known = checker.known
    checked = CheckedExpr(
        root,
        source,
        environment,
        known.closed(result),
        checker.types,
        checker.overloads,
        checker.expansions,
        known,
        checker.literals,
    )
    if checker.literals.any:
        validate(checked, checker.literals)
    return checked


def check_selector(root: Expr, source: str, environment: Environment = DEFAULT) -> CheckedExpr:
    """Check that ``root``, parsed from ``source``, can select devices.

    Raises:
        CelTypeError: undeclared name, unknown field, no matching overload, not a bool.
    """
    checked = check(root, source, environment)
    if checked.result in result_types(environment):
        refused = refused_constants(checked.literals) + _refused_variables(checked)
        if refused:
            raise first_of(refused, source)
        return checked
    reason = f"must evaluate to bool or the unknown type, not {checked.result.declared}"
    raise CelTypeError(reason, source, root.place.line, root.place.column)
