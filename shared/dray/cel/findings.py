"""What one check keeps: the tables it fills, the names in scope, what was refused so far."""

from collections.abc import Iterable, Sequence

from dray.cel import types
from dray.cel.environment import Environment
from dray.cel.errors import Refusal
from dray.cel.expansion import Core
from dray.cel.signatures import Functions, functions_of
from dray.cel.tree import Node, Place
from dray.cel.types import ERROR, Type
from dray.cel.validation import Literals


class Findings:
    """The state of the check of one expression."""

    __slots__ = (
        "device",
        "errors",
        "expansions",
        "functions",
        "known",
        "literals",
        "outermost",
        "overloads",
        "scope",
        "source",
        "types",
    )

    def __init__(self, source: str, environment: Environment) -> None:
        self.source = source
        self.functions: Functions = functions_of(environment)
        self.device = environment.device_fields
        self.scope: dict[str, Type] = {"device": types.DEVICE}
        self.outermost = self.scope if environment.minor >= 37 else None
        self.errors: list[Refusal] = []
        self.known = types.Substitution()
        self.types: dict[int, Type] = {}
        self.overloads: dict[int, tuple[str, ...]] = {}
        self.expansions: dict[int, Core] = {}
        self.literals = Literals()

    def refuse(self, reason: str, place: Place, name: str = "", known: Iterable[str] = ()) -> Type:
        """Note what is wrong with what stands at ``place``, and go on with the rest."""
        self.errors.append(Refusal(reason, place, name, known))
        return ERROR

    def undeclared(self, name: str, place: Place, known: Iterable[str]) -> Type:
        reason = f"undeclared reference to '{name}' (in container '')"
        return self.refuse(reason, place, name, known)

    def resolved(
        self, node: Node, name: str, given: tuple[Type, ...], *, method: bool = False
    ) -> Type:
        found = self.functions.resolve(name, given, self.known, is_method=method)
        if found is None:
            return self._no_overload(name, given, node.place, method=method)
        self.overloads[id(node)] = found.overloads
        return found.result

    def _no_overload(self, name: str, given: Sequence[Type], place: Place, *, method: bool) -> Type:
        shown = [str(self.known.closed(t)) for t in given]
        text = ", ".join(shown[1:] if method else shown)
        applied = f"{shown[0]}.({text})" if method else f"({text})"
        return self.refuse(f"found no matching overload for '{name}' applied to '{applied}'", place)

    def expect(self, wanted: Type, found: Type, place: Place) -> None:
        if not self.known.assign((found,), (wanted,)):
            expected, seen = self.known.closed(wanted), self.known.closed(found)
            self.refuse(f"expected type '{expected}' but found '{seen}'", place)


def elements_of(found: Type) -> tuple[Type, Type, Type] | None:
    """Types of key, value and single variable of a loop over ``found``; None where none is.

    A list's keys are its indexes. The value of an attribute (*any*) can't be looped over.
    """
    if found.kind == "list":
        return types.INT, found.parameters[0], found.parameters[0]
    if found.kind == "map":
        return found.parameters[0], found.parameters[1], found.parameters[0]
    if found.kind in ("dyn", "param"):
        return types.DYN, types.DYN, types.DYN
    if found.kind == "error":
        return found, found, found
    return None
