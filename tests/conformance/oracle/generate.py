"""Pairs of a selector and a device, each made so that one feature decides its outcome."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from devices import make_device, make_driver
from families import FAMILIES, LISTS
from grammar import Maker
from operations import OPERATIONS, Operation, Type
from sharpen import literal_of

BY_TAG: Final = {
    tag: tuple(group) for tag, group in itertools.groupby(OPERATIONS, key=lambda o: o.tag)
}
TAGS: Final = (*BY_TAG, *FAMILIES)
LIST_GATE: Final = "DRAListTypeAttributes"
EXTRA: Final[dict[str, float]] = {}
"""Tags that decide less often than others get more pairs: the factor."""
_ORDERED: Final = (
    "int", "uint", "double", "string", "bytes", "bool", "duration", "timestamp",
)  # fmt: skip
_HOLE: Final = "\x02"
SHARP: Final = {
    **dict.fromkeys(("int", "uint", "double", "string", "bytes", "bool", "list", "map"), _HOLE),
    **dict.fromkeys(("duration", "timestamp", "ip", "cidr"), f"string({_HOLE})"),
    "quantity": f"{_HOLE}.asApproximateFloat()",
    "semver": f"[{_HOLE}.major(), {_HOLE}.minor(), {_HOLE}.patch()]",
    "url": f"[{_HOLE}.getHost(), {_HOLE}.getEscapedPath()]",
    "optional": f"{_HOLE}.hasValue()",
    "dyn": _HOLE,
}
"""What tells most of a value, by its type."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A question to both programs."""

    id: str
    tag: str
    """The feature that is to decide."""
    expression: str
    witness: str
    """The same, but it fails where the feature is used, its arguments evaluated.

    Where the answers differ, the feature decides. Empty if the whole selector is the feature.
    """
    driver: str
    device: dict[str, Any]
    gates: dict[str, bool]
    """Feature gates that are not as the version has them by default."""

    def question(self, minor: str) -> dict[str, Any]:
        """The line of the protocol."""
        return {
            "id": self.id,
            "k8s": minor,
            "featureGates": self.gates,
            "expression": self.expression,
            "witness": self.witness,
            "driver": self.driver,
            "device": self.device,
        }


def pairs(seed: int, count: int, gates: dict[str, bool]) -> Iterator[Pair]:
    """``count`` pairs, the same for the same seed and gates, the tags in turn."""
    rng = random.Random(seed)
    lists = gates.get(LIST_GATE, False)
    tags = [tag for tag in TAGS if lists or tag != LISTS]
    turns = [tag for tag in tags for _ in range(round(10 * EXTRA.get(tag, 1)))]
    rng.shuffle(turns)
    for number, tag in zip(range(count), itertools.cycle(turns)):
        yield _pair(rng, f"{number:06d}", tag, gates)


def _pair(rng: random.Random, name: str, tag: str, gates: dict[str, bool]) -> Pair:
    driver = make_driver(rng)
    lists = gates.get(LIST_GATE, False)
    device = make_device(rng, driver, lists=lists)
    maker = Maker(rng, device, driver, lists=lists)
    if tag in FAMILIES:
        subject, kind = FAMILIES[tag](maker)
        arguments = []
    else:
        subject, kind, arguments = _used(maker, rng.choice(BY_TAG[tag]))
    if kind is None:
        return Pair(name, tag, subject, "", driver, device, gates)
    frame = _framed(maker, _sharp(maker, subject, kind) or _condition(maker, kind))
    expression = frame.replace(_HOLE, _inside(subject, rng))
    witness = frame.replace(_HOLE, f"[{', '.join(f'dyn({a})' for a in arguments)}][7654]")
    return Pair(name, tag, expression, witness, driver, device, gates)


def _inside(subject: str, rng: random.Random) -> str:
    return subject if rng.random() < 0.04 or subject[-1:] in ")]}" else f"({subject})"


def _used(maker: Maker, operation: Operation) -> tuple[str, Type, list[str]]:
    if maker.rng.random() > 0.08:
        return maker.apply(operation, {}, maker.rng.choice([1, 1, 1, 2, 2, 3]))
    usual, maker.mistakes = maker.mistakes, 0.5
    found = maker.apply(operation, {}, 1)
    maker.mistakes = usual
    return found


def _sharp(maker: Maker, subject: str, kind: Type) -> str:
    """A condition that holds for exactly the value that dray computes; often there is none."""
    view = SHARP.get(str(kind[0]), "")
    if kind[0] == "optional" and SHARP.get(str(kind[1][0])) == _HOLE:
        view = f"({_HOLE}.hasValue() ? [{_HOLE}.value()] : [])"
    if not view or maker.rng.random() < 0.5:
        return ""
    wanted = literal_of(view.replace(_HOLE, f"({subject})"), maker.driver, maker.device)
    return f"{view} == {wanted}" if wanted else ""


def _condition(maker: Maker, kind: Type) -> str:
    """A condition on what stands in the hole, which is of type ``kind``."""
    rng, name = maker.rng, str(kind[0])
    if name == "bool":
        return rng.choice([_HOLE, _HOLE, _HOLE, f"!{_HOLE}", f"{_HOLE} == {maker.leaf(kind)}"])
    if name == "optional":
        inner: Any = kind[1]
        held = _condition(maker, inner).replace(_HOLE, f"{_HOLE}.orValue({maker.leaf(inner)})")
        return rng.choice([f"{_HOLE}.hasValue()", held, held, f"{_HOLE} == {maker.leaf(kind)}"])
    if name in ("list", "map"):
        return _condition_on_many(maker, kind)
    other = maker.leaf(kind)
    if name in ("quantity", "semver"):
        relation = rng.choice(["isGreaterThan", "isLessThan"])
        return rng.choice(
            [
                f"{_HOLE}.{relation}({other})",
                f"{_HOLE}.compareTo({other}) > 0",
                f"{_HOLE} == {other}",
            ]
        )
    if name == "url":
        return f'{_HOLE}.getHost() < "h"'
    if name == "format":
        return f"{_HOLE}.validate({maker.leaf(('formatted',))}).hasValue()"
    if name in _ORDERED:
        relation = rng.choice(["<", "<=", ">", ">=", "==", "!="])
        return rng.choice(
            [f"{_HOLE} {relation} {other}", f"{_HOLE} {relation} {other}", _shown(name)]
        )
    return f"{_HOLE} {rng.choice(['==', '!='])} {other}"


def _shown(name: str) -> str:
    """A condition on how the value is written."""
    return f'string({_HOLE}) {">=" if name != "bytes" else "!="} "5"' if name != "bool" else _HOLE


def _condition_on_many(maker: Maker, kind: Type) -> str:
    rng = maker.rng
    inner: Any = kind[1]
    choices = [
        f"{_HOLE}.size() {rng.choice(['>', '<', '=='])} {rng.randint(0, 3)}",
        f"{_HOLE} {rng.choice(['==', '!='])} {maker.leaf(kind)}",
        f"{maker.leaf(inner)} in {_HOLE}",
    ]
    if inner == ("string",) and kind[0] == "list":
        choices += [f'{_HOLE}.join("|") < {maker.leaf(inner)}'] * 2
    if kind[0] == "list":
        held = _condition(maker, inner)
        choices += [
            held.replace(_HOLE, f"{_HOLE}[0]"),
            f"{_HOLE}.exists(e, {held.replace(_HOLE, 'e')})",
        ]
    else:
        held = _condition(maker, kind[2])  # type: ignore[arg-type]
        choices.append(f"{_HOLE}.all(k, v, {held.replace(_HOLE, 'v')})")
    return rng.choice(choices)


def _framed(maker: Maker, condition: str) -> str:
    """The condition among others; mostly it still decides."""
    rng = maker.rng
    if rng.random() < 0.62:
        return condition
    other = maker.make(("bool",), 1)
    return rng.choice(
        [
            f"{condition} && true", f"false || {condition}", f"{condition} && {other}",
            f"{other} || {condition}", f"({condition}) ? true : false",
            f"true ? ({condition}) : {other}",
            f"[1, 2].all(n, n > 0 && ({condition}))",
            f"cel.bind(c, {condition}, c)", f"!({condition})",
            f"[{condition}].exists(c, c)", f"cel.bind(d, device.driver, d == d && ({condition}))",
            f"({condition}) == true", f"({condition}) != {other}", f"{{'k': {condition}}}.k",
        ]
    )  # fmt: skip
