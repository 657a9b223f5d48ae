"""Static types of CEL and the rules by which one fits another (as in cel-go's checker)."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Type:
    """A type by name with its parameters; ``kind`` *param* is a type variable."""

    name: str
    parameters: tuple["Type", ...] = ()
    kind: str = "plain"

    def __str__(self) -> str:
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(map(str, self.parameters))})"

    @property
    def is_dynamic(self) -> bool:
        """Whether only evaluation tells the type."""
        return self.name in ("dyn", "any")


BOOL, INT, UINT, DOUBLE = Type("bool"), Type("int"), Type("uint"), Type("double")
STRING, BYTES, NULL = Type("string"), Type("bytes"), Type("null")
DYN, ANY = Type("dyn"), Type("any")
QUANTITY, SEMVER = Type("kubernetes.Quantity"), Type("kubernetes.Semver")
DEVICE = Type("kubernetes.DRADevice")
TIMESTAMP, DURATION = Type("google.protobuf.Timestamp"), Type("google.protobuf.Duration")


def list_of(item: Type) -> Type:
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("optional_type", (value,))


def type_of(value: Type) -> Type:
    """The type of a type, as in ``int`` or ``type(x)``."""
    return Type("type", (value,))


def variable(name: str) -> Type:
    return Type(name, (), "param")


DEVICE_FIELDS: Final = {
    "driver": STRING,
    "attributes": map_of(STRING, map_of(STRING, ANY)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    "allowMultipleAllocations": BOOL,
}
TYPE_NAMES: Final = {
    **{t.name: type_of(t) for t in (BOOL, INT, UINT, DOUBLE, STRING, BYTES)},
    "null_type": type_of(NULL),
    "list": type_of(list_of(DYN)),
    "map": type_of(map_of(DYN, DYN)),
    "type": type_of(type_of(DYN)),
    "optional_type": type_of(optional_of(DYN)),
}


class Substitution:
    """What the type variables met so far stand for."""

    def __init__(self) -> None:
        self._known: dict[Type, Type] = {}
        self._fresh = 0

    def fresh(self) -> Type:
        """A type variable that nothing else uses."""
        self._fresh += 1
        return variable(f"_var{self._fresh}")

    def assign(self, given: tuple[Type, ...], wanted: tuple[Type, ...]) -> bool:
        """Whether ``given`` fit ``wanted``; what that says of variables is kept only then."""
        before = dict(self._known)
        if len(given) == len(wanted) and all(map(self._fits, given, wanted)):
            return True
        self._known = before
        return False

    def resolve(self, found: Type, *, open_is_dyn: bool = False) -> Type:
        """``found`` with its variables replaced; unknown ones become dyn where asked."""
        if found in self._known:
            return self.resolve(self._known[found], open_is_dyn=open_is_dyn)
        if found.kind == "param":
            return DYN if open_is_dyn else found
        if not found.parameters:
            return found
        parameters = (self.resolve(p, open_is_dyn=open_is_dyn) for p in found.parameters)
        return Type(found.name, tuple(parameters), found.kind)

    def _fits(self, given: Type, wanted: Type) -> bool:
        if given is wanted:
            return True
        if wanted.kind == "param":
            valid, known = self._try(given, wanted)
            if valid or known:
                return valid
        if given.kind == "param":
            return self._try(wanted, given)[0]
        if given.is_dynamic or wanted.is_dynamic:
            return True
        if NULL in (given, wanted) and _is_nullable(wanted if given == NULL else given):
            return True
        if given.name != wanted.name:
            return False
        if given.name == "type":
            return True
        return len(given.parameters) == len(wanted.parameters) and all(
            map(self._fits, given.parameters, wanted.parameters)
        )

    def _try(self, found: Type, name: Type) -> tuple[bool, bool]:
        """Whether variable ``name`` can be ``found``, and whether it was known before."""
        if found == name:
            return True, True
        known = self._known.get(name)
        if known is not None:
            if found == known:
                return True, True
            if not self._fits(found, known):
                return False, True
            general = found if _is_more_general(found, known) else known
            if not self._occurs(name, general):
                self._known[name] = general
            return True, True
        if self._occurs(name, found):
            return False, False
        self._known[name] = found
        return True, False

    def _occurs(self, name: Type, inside: Type) -> bool:
        if inside == name:
            return True
        if inside in self._known:
            return self._occurs(name, self._known[inside])
        return any(self._occurs(name, parameter) for parameter in inside.parameters)


def _is_nullable(found: Type) -> bool:
    """Opaque and object types, which null fits for historical reasons."""
    return found.name.startswith(("kubernetes.", "google.")) or found.name == "optional_type"


def _is_more_general(left: Type, right: Type) -> bool:
    if left.is_dynamic or left.kind == "param":
        return True
    if right.is_dynamic or right.kind == "param":
        return False
    if left.name != right.name:
        return False
    if left.name == "type":
        return True
    return all(map(_is_more_general, left.parameters, right.parameters))


def join(left: Type, right: Type) -> Type:
    """The more general of two types that fit each other."""
    return left if _is_more_general(left, right) else right


def may_fit(given: tuple[Type, ...], wanted: tuple[Type, ...]) -> bool:
    """False where number or outermost names already rule it out; cheap, asked first."""
    if len(given) != len(wanted):
        return False
    return all(
        have.name == want.name or _is_open(have) or _is_open(want)
        for have, want in zip(given, wanted, strict=True)
    )


def _is_open(found: Type) -> bool:
    return found.kind == "param" or found.is_dynamic or found == NULL


def elements_of(found: Type) -> tuple[Type, Type, Type] | None:
    """Types of key, value and single variable of a loop over ``found``; None where none is.

    A list's keys are its indexes. The value of an attribute (*any*) can't be looped over.
    """
    if found.name == "list":
        return INT, found.parameters[0], found.parameters[0]
    if found.name == "map":
        return found.parameters[0], found.parameters[1], found.parameters[0]
    if found.name == "dyn" or found.kind == "param":
        return DYN, DYN, DYN
    return None


def instantiated(found: Type, names: dict[Type, Type]) -> Type:
    """``found`` with the type variables ``names`` replaced."""
    if not names:
        return found
    if found.kind == "param":
        return names[found]
    if not found.parameters:
        return found
    return Type(found.name, tuple(instantiated(p, names) for p in found.parameters), found.kind)
