"""Expressions of a wanted type, made at random from the table of operations."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from devices import CAPACITIES, DOMAINS, USUAL, attributes_of, capacities_of
from leaves import LITERALS, PLAIN, WORDS, bytes_literal, quoted
from operations import OPERATIONS, Argument, Operation, Type

SIMPLE: Final = (
    *["int"] * 5, *["string"] * 5, *["bool"] * 2, *["double"] * 2, *["uint"] * 2, "bytes", "semver",
    "quantity", "duration", "timestamp", "null", "list", "map", "ip", "optional",
)  # fmt: skip
VARIABLES: Final = {
    "K": ("string", "string", "int", "uint", "bool"),
    "O": ("int", "int", "string", "string", "uint", "double", "bool", "duration", "timestamp",
          "bytes"),
    "N": ("int", "int", "uint", "double"),
}  # fmt: skip
ATTRIBUTE_KINDS: Final = {"string": "string", "int": "int", "bool": "bool", "semver": "version"}
CONSTRUCTORS: Final = {
    "quantity": ("quantity({})", "amount"),
    "semver": ("semver({})", "release"),
    "ip": ("ip({})", "host"),
    "cidr": ("cidr({})", "network"),
    "url": ("url({})", "address"),
    "duration": ("duration({})", "period"),
    "timestamp": ("timestamp({})", "instant"),
}
FORMATS: Final = (
    "dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix",
    "dns1123SubdomainPrefix", "dns1035LabelPrefix", "labelValue", "uri", "uuid", "byte", "date",
    "datetime",
)  # fmt: skip
GOOD_TEXTS: Final = 9
"""How many of each kind in LITERALS, from the first, are likely to parse."""


class Maker:
    """Makes expressions over one device; keeps the variables in scope."""

    def __init__(
        self, rng: random.Random, device: dict[str, Any], driver: str, *, lists: bool = False
    ) -> None:
        self.rng = rng
        self.device = device
        self.driver = driver
        self.lists = lists
        """Whether attributes may have several values."""
        self.mistakes = 0.006
        """How often an argument is of a wrong type."""
        self._scope: list[tuple[str, Type]] = []
        self._made = 0
        self._with_device = True

    def make(self, wanted: Type, depth: int) -> str:
        """An expression of type ``wanted`` that can stand inside any other."""
        if self.rng.random() < self.mistakes:
            wanted = self.some_type()
        if depth > 0 and self.rng.random() < 0.65 and (fitting := self._fitting(wanted)):
            operation, bindings = self.rng.choice(fitting)
            text, _, _ = self.apply(operation, bindings, depth)
            return f"({text})" if operation.is_loose and self.rng.random() < 0.96 else text
        return self.leaf(wanted)

    def apply(
        self, operation: Operation, bindings: dict[str, Type], depth: int
    ) -> tuple[str, Type, list[str]]:
        """The operation with arguments made for it, its type, and those that it evaluates once."""
        bindings = dict(bindings)
        names = {name: self._new_name() for name in ("$v", "$i") if name in operation.template}
        texts = [
            self._argument(argument, bindings, names, depth) for argument in operation.arguments
        ]
        text = operation.template
        for name, chosen in names.items():
            text = text.replace(name, chosen)
        for place in range(len(texts)):
            text = text.replace(f"{{{place}}}", "\x00" + str(place) + "\x01")
        for place, found in enumerate(texts):
            text = text.replace(f"\x00{place}\x01", found)
        plain = [
            found
            for argument, found in zip(operation.arguments, texts, strict=True)
            if not argument.variables
        ]
        return text, self._closed(operation.result, bindings), plain

    def _argument(
        self, argument: Argument, bindings: dict[str, Type], names: dict[str, str], depth: int
    ) -> str:
        before = len(self._scope)
        for name, kind in argument.variables:
            self._scope.append((names[name], self._closed(kind, bindings)))
        found = self.make(self._closed(argument.type, bindings), depth - 1)
        del self._scope[before:]
        return found

    def some_type(self, variable: str = "T") -> Type:
        """Any type that a type variable of that name may stand for."""
        name = self.rng.choice(VARIABLES.get(variable, SIMPLE))
        if name == "list":
            return ("list", self.some_type())
        if name == "map":
            return ("map", self.some_type("K"), self.some_type())
        return ("optional", self.some_type()) if name == "optional" else (name,)

    def _closed(self, kind: Type, bindings: dict[str, Type]) -> Type:
        """``kind`` with its type variables bound, by choice where they are free."""
        name = str(kind[0])
        if name in ("T", "V", "K", "O", "N"):
            if name not in bindings:
                bindings[name] = self.some_type(name)
            return bindings[name]
        return (name, *(self._closed(part, bindings) for part in kind[1:]))  # type: ignore[arg-type]

    def _fitting(self, wanted: Type) -> list[tuple[Operation, dict[str, Type]]]:
        if wanted == ("dyn",):
            wanted = self.some_type()
        return fitting(wanted)

    def _new_name(self) -> str:
        self._made += 1
        return self.rng.choice(["i", "x", "v", "e", "item"]) + str(self._made)

    def leaf(self, wanted: Type) -> str:
        """A literal, a variable in scope or something of the device."""
        name = str(wanted[0])
        known = [text for text, kind in self._scope if kind == wanted or name == "dyn"]
        if known and self.rng.random() < 0.7:
            return self.rng.choice(known)
        if name in LITERALS and name not in PLAIN:
            return self._text(name)
        from_device = self._with_device and self.rng.random() < 0.35
        if from_device and name in (*ATTRIBUTE_KINDS, "dyn"):
            return self.attribute(ATTRIBUTE_KINDS.get(name, "any"))
        if from_device and name == "quantity":
            return self.capacity()
        if name == "string":
            return quoted(self.rng.choice(WORDS), self.rng)
        if name == "bytes":
            return bytes_literal(self.rng.choice(WORDS), self.rng)
        if name in PLAIN:
            found = self._number(name)
            return f"({found})" if found.startswith("-") and self.rng.random() < 0.8 else found
        if name in CONSTRUCTORS:
            template, argument = CONSTRUCTORS[name]
            return template.format(self._text(argument, good=0.93))
        if name == "format":
            return f"format.{self.rng.choice(FORMATS)}()"
        return self._composite(name, wanted)

    def _number(self, name: str) -> str:
        if name in ("int", "uint") and self.rng.random() < 0.4:
            return str(self.rng.randint(0, 6)) + ("u" if name == "uint" else "")
        return self.rng.choice(LITERALS[name])

    def _composite(self, name: str, wanted: Type) -> str:
        inner: list[Type] = [part for part in wanted[1:] if isinstance(part, tuple)]
        if name == "list":
            return self._list(inner[0])
        if name == "map":
            with self._homogeneous():
                return self._map(inner[0], inner[1])
        if name == "optional":
            if self.rng.random() < 0.3:
                return "optional.none()"
            return f"optional.of({self.leaf(inner[0])})"
        return f"dyn({self.leaf(self.some_type())})"

    def _list(self, item: Type) -> str:
        kind = ATTRIBUTE_KINDS.get(str(item[0]))
        if kind and self.lists and self._with_device and self.rng.random() < 0.5:
            return self.attribute(f"{kind}s")
        count = self.rng.choice([0, 1, 2, 2, 3, 3, 4])
        if kind and self._with_device and self.rng.random() < 0.15:
            return "[" + ", ".join(self.attribute(kind) for _ in range(count)) + "]"
        with self._homogeneous():
            return "[" + ", ".join(self.leaf(item) for _ in range(count)) + "]"

    @contextmanager
    def _homogeneous(self) -> Iterator[None]:
        """Within, nothing of the device: an attribute's type differs from a literal's."""
        before, self._with_device = self._with_device, self.rng.random() < 0.04
        yield
        self._with_device = before

    def _map(self, key: Type, value: Type) -> str:
        if key == ("string",) and self.rng.random() < 0.15:
            return self.domain_of(self.rng.choice(["attributes", "capacity"]))
        keys = dict.fromkeys(self.leaf(key) for _ in range(self.rng.choice([0, 1, 2, 2, 3])))
        if key == ("string",) and self.rng.random() < 0.6:
            keys['"k"'] = None
        return "{" + ", ".join(f"{k}: {self.leaf(value)}" for k in keys) + "}"

    def _text(self, name: str, good: float = 0.55) -> str:
        roll = self.rng.random()
        if roll < 0.08:
            return self.leaf(("string",))
        if roll < 0.08 + good:
            return self.rng.choice(LITERALS[name][:GOOD_TEXTS])
        return self.rng.choice(LITERALS[name])

    def attribute(self, kind: str) -> str:
        """An attribute that holds a ``kind``, or once in a while another or none."""
        there = attributes_of(self.device, self.driver, kind)
        if there and self.rng.random() < 0.88:
            domain, name = self.rng.choice(there)
        else:
            domain, name = self.rng.choice([self.driver, *DOMAINS]), self.rng.choice(list(USUAL))
        return self._of_device("attributes", domain, name)

    def capacity(self) -> str:
        """A capacity of the device, or once in a while one that it lacks."""
        there = capacities_of(self.device, self.driver)
        if there and self.rng.random() < 0.92:
            domain, name = self.rng.choice(there)
        else:
            domain, name = self.driver, self.rng.choice(CAPACITIES)
        return self._of_device("capacity", domain, name)

    def make_small(self, wanted: Type) -> str:
        """An expression with at most one operation."""
        return self.make(wanted, 1)

    def leaf_of_device(self, name: str) -> str:
        """An attribute of that CEL type."""
        return self.attribute(ATTRIBUTE_KINDS[name])

    def domain_of(self, field: str) -> str:
        """The map of all that the device has in one domain."""
        return f'device.{field}["{self.rng.choice([self.driver] * 4 + DOMAINS)}"]'

    def _of_device(self, field: str, domain: str, name: str) -> str:
        where = "device.driver" if domain == self.driver and self.rng.random() < 0.1 else None
        key = where or f'"{domain}"'
        return self.rng.choice(
            [f"device.{field}[{key}].{name}"] * 4 + [f'device.{field}[{key}]["{name}"]']
        )


def fitting(wanted: Type) -> list[tuple[Operation, dict[str, Type]]]:
    """The operations that can give a ``wanted``, with the type variables that follow."""
    if wanted not in _FITTING:
        found = [(operation, unified(operation.result, wanted)) for operation in COMMON]
        _FITTING[wanted] = [(operation, bound) for operation, bound in found if bound is not None]
    return _FITTING[wanted]


COMMON: Final = tuple(operation for operation in OPERATIONS if operation.tag != "messages")
"""What arguments are made of. Messages stand where they are the subject only: nobody selects
devices with them."""
_FITTING: dict[Type, list[tuple[Operation, dict[str, Type]]]] = {}


def unified(pattern: Type, wanted: Type) -> dict[str, Type] | None:
    """The bindings under which ``pattern`` is ``wanted``; None if there are none."""
    name = str(pattern[0])
    if name in ("T", "V", "K", "O", "N"):
        allowed = VARIABLES.get(name)
        return {name: wanted} if allowed is None or wanted[0] in allowed else None
    if name != wanted[0] or len(pattern) != len(wanted):
        return None
    bindings: dict[str, Type] = {}
    for part, other in zip(pattern[1:], wanted[1:], strict=True):
        found = unified(part, other)  # type: ignore[arg-type]
        if found is None or any(bindings.get(k, v) != v for k, v in found.items()):
            return None
        bindings |= found
    return bindings
