"""Static types of CEL. There is one object for each type, so that ``is`` compares them."""

from threading import Lock
from typing import Final
from weakref import WeakValueDictionary

_SCALARS: Final = frozenset(("bool", "int", "uint", "double", "duration", "timestamp"))


class Type:
    """A type: its name and its parameters.

    ``kind`` is one of bool, int, uint, double, string, bytes, null, duration, timestamp, dyn,
    any, error, list, map, type, struct (fields, compared by name), opaque, wrapper (a scalar or
    null) and param (a type variable). ``is_open``: whether the type contains a variable.
    """

    __slots__ = ("__weakref__", "is_dynamic", "is_open", "kind", "name", "parameters")

    name: str
    kind: str
    parameters: tuple["Type", ...]
    is_dynamic: bool
    """Whether the type is known only at evaluation."""
    is_open: bool

    def __new__(cls, name: str, parameters: tuple["Type", ...] = (), kind: str = "") -> "Type":
        key = (name, parameters)
        return _made.get(key) or cls._make(key, kind)

    @classmethod
    def _make(cls, key: tuple[str, tuple["Type", ...]], kind: str) -> "Type":
        with _making:
            found = _made.get(key)
            if found is None:
                found = super().__new__(cls)
                found.name, found.parameters = key
                found.kind = kind or found.name
                found.is_dynamic = found.kind in ("dyn", "any", "error")
                found.is_open = found.kind == "param" or any(p.is_open for p in found.parameters)
                _made[key] = found
            return found

    def __reduce__(self) -> tuple[object, ...]:
        return Type, (self.name, self.parameters, self.kind)

    def __repr__(self) -> str:
        return f"Type({self})"

    def __str__(self) -> str:
        """The type as in the checker's messages."""
        name = _IN_MESSAGES.get(self.name, self.name)
        if not self.parameters:
            return name
        return f"{name}({', '.join(map(str, self.parameters))})"

    @property
    def declared(self) -> str:
        """The type's name as its values give it, and as in the message about a result."""
        if self.kind == "wrapper":
            return f"wrapper({self.parameters[0].declared})"
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(p.declared for p in self.parameters)})"

    @property
    def is_scalar(self) -> bool:
        """Whether all values have one size. cel-go's estimate uses 1 for them."""
        if self.name == "optional_type" or self.kind == "wrapper":
            return bool(self.parameters) and self.parameters[0].is_scalar
        return self.kind in _SCALARS


_making: Final = Lock()
_made: WeakValueDictionary[tuple[str, tuple[Type, ...]], Type] = WeakValueDictionary()
_IN_MESSAGES: Final = {
    "null_type": "null",
    "google.protobuf.Duration": "duration",
    "google.protobuf.Timestamp": "timestamp",
}

BOOL, INT, UINT, DOUBLE = Type("bool"), Type("int"), Type("uint"), Type("double")
STRING, BYTES, NULL = Type("string"), Type("bytes"), Type("null_type", (), "null")
DYN, ANY = Type("dyn"), Type("any")
ERROR = Type("!error!", (), "error")
"""The type of a refused node. It fits everywhere, so that the node is refused only once."""
DURATION = Type("google.protobuf.Duration", (), "duration")
TIMESTAMP = Type("google.protobuf.Timestamp", (), "timestamp")
QUANTITY, SEMVER = (
    Type("kubernetes.Quantity", (), "struct"),
    Type("kubernetes.Semver", (), "struct"),
)
URL = Type("kubernetes.URL", (), "struct")
NAMED_FORMAT = Type("kubernetes.NamedFormat", (), "struct")
IP, CIDR = Type("net.IP", (), "opaque"), Type("net.CIDR", (), "opaque")
DEVICE = Type("kubernetes.DRADevice", (), "struct")
_TYPE = Type("type")


def list_of(item: Type) -> Type:
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("optional_type", (value,), "opaque")


def type_of(value: Type) -> Type:
    """The type of a type, as in ``int`` or ``type(x)``."""
    return Type("type", (value,))


def wrapper_of(value: Type) -> Type:
    """A scalar that may be null, as protobuf's wrapper messages are."""
    return Type("wrapper", (value,))


def variable(name: str) -> Type:
    return Type(name, (), "param")


TYPE_NAMES: Final = {
    **{t.name: type_of(t) for t in (BOOL, INT, UINT, DOUBLE, STRING, BYTES)},
    **{t.name: type_of(t) for t in (NULL, DURATION, TIMESTAMP, IP, CIDR)},
    "list": type_of(list_of(variable("A"))),
    "map": type_of(map_of(variable("A"), variable("B"))),
    "type": type_of(_TYPE),
    "optional_type": type_of(Type("optional_type", (), "opaque")),
}
"""Names of types that an expression may write."""


class Substitution:
    """The types of the type variables found so far."""

    __slots__ = ("_fresh", "_known", "_trail")

    def __init__(self) -> None:
        self._known: dict[Type, Type] = {}
        self._trail: list[tuple[Type, Type | None]] = []
        """The variables that the current assignment changed, with their previous types."""
        self._fresh = 0

    def fresh(self) -> Type:
        """A type variable that nothing else uses."""
        self._fresh += 1
        return variable(f"_var{self._fresh}")

    def assign(self, given: tuple[Type, ...], wanted: tuple[Type, ...]) -> bool:
        """Whether ``given`` fit ``wanted``. Only then are the variables' new types kept."""
        self._trail.clear()
        if len(given) == len(wanted) and all(map(self._fits, given, wanted)):
            return True
        for name, before in reversed(self._trail):
            if before is None:
                del self._known[name]
            else:
                self._known[name] = before
        return False

    def _set(self, name: Type, found: Type) -> None:
        self._trail.append((name, self._known.get(name)))
        self._known[name] = found

    def resolve(self, found: Type) -> Type:
        """``found`` with its known variables replaced."""
        if not found.is_open:
            return found
        if found.kind == "param":
            known = self._known.get(found)
            return found if known is None else self.resolve(known)
        return Type(found.name, tuple(map(self.resolve, found.parameters)), found.kind)

    def closed(self, found: Type) -> Type:
        """``found`` with its variables replaced, unknown ones by dyn."""
        if not found.is_open:
            return found
        if found.kind == "param":
            known = self._known.get(found)
            return DYN if known is None else self.closed(known)
        return Type(found.name, tuple(map(self.closed, found.parameters)), found.kind)

    def _fits(self, given: Type, wanted: Type) -> bool:
        if wanted.kind == "param":
            valid, known = self._try(given, wanted)
            if valid or known:
                return valid
        if given.kind == "param":
            return self._try(wanted, given)[0]
        if given is wanted or given.is_dynamic or wanted.is_dynamic:
            return True
        if given is NULL or wanted is NULL:
            return _is_nullable(wanted if given is NULL else given)
        if wanted.kind == "wrapper":
            return given is wanted.parameters[0]
        if given.kind == "wrapper":
            return wanted is given.parameters[0]
        if given.kind == "type":
            return wanted.kind == "type"
        return (
            given.name == wanted.name
            and given.kind in ("list", "map", "opaque")
            and len(given.parameters) == len(wanted.parameters)
            and all(map(self._fits, given.parameters, wanted.parameters))
        )

    def _try(self, found: Type, name: Type) -> tuple[bool, bool]:
        """Whether variable ``name`` can be ``found``, and whether it was known before."""
        if found is name:
            return True, True
        known = self._known.get(name)
        if known is not None:
            if found is known:
                return True, True
            if not self._fits(found, known):
                return False, True
            general = join(found, known)
            if general is not known and not self._occurs(name, general):
                self._set(name, general)
            return True, True
        if self._occurs(name, found):
            return False, False
        self._set(name, found)
        return True, False

    def _occurs(self, name: Type, inside: Type) -> bool:
        if inside is name:
            return True
        if not inside.is_open:
            return False
        known = self._known.get(inside)
        if known is not None:
            return self._occurs(name, known)
        return any(self._occurs(name, parameter) for parameter in inside.parameters)


def _is_nullable(found: Type) -> bool:
    """Whether null fits: wrappers and, for historical reasons, opaque and object types."""
    return found.kind in ("opaque", "struct", "any", "duration", "timestamp", "wrapper", "null")


def _is_more_general(left: Type, right: Type) -> bool:
    if left.is_dynamic or left.kind == "param":
        return True
    if right.is_dynamic or right.kind == "param":
        return False
    if left.kind == "type":
        return right.kind == "type"
    if left.kind not in ("list", "map", "opaque"):
        return left is right
    return (
        left.name == right.name
        and len(left.parameters) == len(right.parameters)
        and all(map(_is_more_general, left.parameters, right.parameters))
    )


def join(left: Type, right: Type) -> Type:
    """The more general of two types that fit each other."""
    return left if _is_more_general(left, right) else right


def may_fit(given: tuple[Type, ...], wanted: tuple[Type, ...]) -> bool:
    """A cheap first check: False if the number or the outermost names do not fit."""
    if len(given) != len(wanted):
        return False
    return all(
        have.name == want.name or _is_loose(have) or _is_loose(want)
        for have, want in zip(given, wanted, strict=True)
    )


def _is_loose(found: Type) -> bool:
    return found.is_dynamic or found.kind in ("param", "null", "wrapper")


def instantiated(found: Type, names: dict[Type, Type]) -> Type:
    """``found`` with the type variables ``names`` replaced."""
    if not names or not found.is_open:
        return found
    if found.kind == "param":
        return names[found]
    return Type(found.name, tuple(instantiated(p, names) for p in found.parameters), found.kind)
