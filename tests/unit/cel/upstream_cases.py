"""The cases that Kubernetes tests its own compiler of selectors with, in a table of ours.

Costs are the estimates that admission compares with the limit; evaluation may never use more.
Rows without a list gate hold whether or not attributes may be lists.
"""

from dataclasses import dataclass, field, replace
from typing import Any

D = "dra.example.com"
A = f'device.attributes["{D}"]'
C = f'device.capacity["{D}"]'
MANY = [f"value-{n}" for n in range(49)]
ONE_TO_TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
LIMIT_IN_ELEMENTS = 64
"""What the estimate takes for the length of an attribute, be it a string or a list."""
LONGEST_LIST = 48


@dataclass(frozen=True)
class Case:
    """One row; ``lists`` and ``sharing`` are the gates, None tries both."""

    name: str
    expression: str
    expected: bool | str
    cost: int | None = None
    driver: str = D
    attributes: dict[str, Any] = field(default_factory=dict)
    capacity: dict[str, str] = field(default_factory=dict)
    shared: bool | None = None
    lists: bool | None = None
    sharing: bool = False
    new: bool = False
    minors: tuple[str, ...] = ("1.36", "1.37")
    cost_in_137: int | None = None
    """Where it differs."""

    def cost_in(self, minor: str) -> int | None:
        """The estimate of that minor version."""
        return self.cost_in_137 if minor == "1.37" and self.cost_in_137 else self.cost

    def device(self) -> dict[str, Any]:
        """As in a ResourceSlice."""
        capacity = {name: {"value": amount} for name, amount in self.capacity.items()}
        device = {"attributes": self.attributes, "capacity": capacity}
        return device | ({} if self.shared is None else {"allowMultipleAllocations": self.shared})


def _exists(kind: str, value: Any, condition: str, per_element: int) -> Case:
    return Case(
        f"exists on a single {kind}", f"{A}.name.exists(x, {condition})", "expected iterable type",
        5 + per_element * LIMIT_IN_ELEMENTS, attributes={"name": {kind: value}}, lists=True,
        new=True,
    )  # fmt: skip


def _listed(name: str, values: dict[str, Any], expression: str, cost: int) -> Case:
    return Case(
        name, expression, True, cost, attributes={"names": values}, lists=True, new=True
    )  # fmt: skip


def _includes(name: str, value: dict[str, Any], wanted: str, expected: bool | str) -> Case:
    constructed = int(wanted.startswith("semver"))
    return Case(
        f"includes: {name}", f"{A}.name.includes({wanted})", expected,
        4 + LONGEST_LIST + constructed, attributes={"name": value}, lists=True, new=True,
        cost_in_137=4 + LIMIT_IN_ELEMENTS + constructed,
    )  # fmt: skip


CASES = [
    Case("true", "true", True, 0),
    Case("false", "false", False, 0),
    Case("syntax error", "?!", "compile: Syntax error"),
    Case("wrong result", "1", "compile: must evaluate to bool or the unknown type, not int"),
    Case(
        "no such name",
        'device.attributes["no-such-domain"].noSuchAttr.isGreaterThan(quantity("0"))',
        "no such key: noSuchAttr", 6, driver="",
    ),
    Case(
        "no such key",
        'device.attributes["no-such-domain"]["noSuchAttr"].isGreaterThan(quantity("0"))',
        "no such key: noSuchAttr", 6, driver="",
    ),
    Case("domain missing", '"no-such-domain" in device.attributes', False, 3, driver=""),
    Case(
        "domain there", f'"{D}" in device.attributes', True, 3, driver="",
        attributes={f"{D}/something": {"bool": True}},
    ),
    Case("no driver", 'device.driver == ""', True, 2, driver=""),
    Case("driver", f'device.driver == "{D}"', True, 4),
    Case("unqualified", f"{A}.name", True, 4, attributes={"name": {"bool": True}}),
    Case("unqualified key", f'{A}["name"]', True, 4, attributes={"name": {"bool": True}}),
    Case("bind", f"cel.bind(dra, {A}, dra.name)", True, 15, attributes={"name": {"bool": True}}),
    Case(
        "qualified", 'device.attributes["other.example.com"].name', True, 4,
        attributes={"other.example.com/name": {"bool": True}},
    ),
    Case("bool", f"{A}.name", True, 4, attributes={"name": {"bool": True}}),
    Case("int", f"{A}.name > 0", True, 5, attributes={"name": {"int": 1}}),
    Case("string", f'{A}.name == "fish"', True, 5, attributes={"name": {"string": "fish"}}),
    _exists("int", 1, "x > 0", 6),
    _exists("bool", True, "x == true", 6),
    _exists("string", "fish", 'x == "fish"', 6),
    _exists("version", "1.0.0", 'x.isGreaterThan(semver("0.0.1"))', 7),
    Case(
        "a list without the gate", f"{A}.names", "attribute names: unsupported attribute value", 4,
        attributes={"names": {"strings": ["fish", "bird"]}}, lists=False, minors=("1.36",),
    ),
    Case(
        "a list as the result", f"{A}.names", "CEL result of type list could not be converted", 4,
        attributes={"names": {"strings": ["fish", "bird"]}}, lists=True, minors=("1.37",),
    ),
    Case(
        "a macro on what may be no list", f"{A}.ids.exists(id, id == 1)",
        "compile: expression of type 'any' cannot be range of a comprehension", lists=False,
        new=True, minors=("1.37",),
    ),
    Case(
        "stored includes", f'{A}.name.includes("fish")', True, 4 + LIMIT_IN_ELEMENTS,
        attributes={"name": {"strings": ["fish", "bird"]}}, lists=True, minors=("1.37",),
    ),
    _listed("size of bools", {"bools": [True, False]}, f"{A}.names.size() == 2", 6),
    _listed("size of ints", {"ints": [1, 2]}, f"{A}.names.size() == 2", 6),
    _listed("size of strings", {"strings": ["fish", "bird"]}, f"{A}.names.size() == 2", 6),
    _listed("size of versions", {"versions": ["1.0.0", "2.0.0"]}, f"{A}.names.size() == 2", 6),
    _listed("exists on ints", {"ints": [1, 2]}, f"{A}.names.exists(x, x > 0)", 5 + 6 * 64),
    _listed("all of strings", {"strings": ["a", "b"]}, f'{A}.names.all(x, x != "")', 5 + 4 * 64),
    _listed(
        "all of versions", {"versions": ["1.0.0", "2.0.0"]},
        f'{A}.names.all(x, x.isGreaterThan(semver("0.0.1")))', 5 + 6 * 64,
    ),
    _listed("in a list", {"ints": [1, 2, 3]}, f"1 in {A}.names", 4 + 64),
    Case(
        "includes without the gate", f'{A}.name.includes("fish")',
        "compile: undeclared reference to 'includes'", lists=False, new=True,
    ),
    _includes("this bool", {"bool": True}, "true", True),
    _includes("the other bool", {"bool": False}, "true", False),
    _includes("a bool among them", {"bools": [True, False]}, "true", True),
    _includes("no such bool", {"bools": [True, True]}, "false", False),
    _includes("this int", {"int": 1}, "1", True),
    _includes("another int", {"int": 2}, "1", False),
    _includes("an int among them", {"ints": [1, 2]}, "1", True),
    _includes("no such int", {"ints": [1, 2]}, "3", False),
    _includes("this string", {"string": "fish"}, '"fish"', True),
    _includes("another string", {"string": "fish"}, '"bird"', False),
    _includes("a string among them", {"strings": ["fish", "bird"]}, '"fish"', True),
    _includes("no such string", {"strings": ["fish", "bird"]}, '"cat"', False),
    _includes("this version", {"version": "1.0.0"}, 'semver("1.0.0")', True),
    _includes("another version", {"version": "1.0.0"}, 'semver("2.0.0")', False),
    _includes("a version among", {"versions": ["1.0.0", "2.0.0"]}, 'semver("1.0.0")', True),
    _includes("no such version", {"versions": ["1.0.0", "2.0.0"]}, 'semver("3.0.0")', False),
    _includes("the longest list", {"strings": MANY[:48]}, '"value-48"', False),
    replace(
        _includes("a longer list", {"strings": MANY}, '"value-49"', "longer than 48 values"),
        minors=("1.36",),
    ),
    Case(
        "version", f'{A}.name.isGreaterThan(semver("0.0.1"))', True, 6,
        attributes={"name": {"version": "1.0.0"}},
    ),
    Case(
        "version with v",
        f'{A}.name.isGreaterThan(semver("v0.0.1", true)) && isSemver("v1.0.0", true)', True, 7,
        attributes={"name": {"version": "1.0.0"}},
    ),
    Case(
        "capacity", f'{C}.name.isGreaterThan(quantity("1Ki"))', True, 6, capacity={"name": "1Mi"},
    ),
    Case(
        "checked first", f'"name" in {C} && {C}.name.isGreaterThan(quantity("1Ki"))', True, 10,
        capacity={"name": "1Mi"},
    ),
    Case(
        "absent or enough", f'!("name" in {C}) || {C}.name.isGreaterThan(quantity("1Ki"))',
        True, 11, driver="",
    ),
    Case(
        "everything",
        f"""
{C}.quantity.isGreaterThan(quantity("1Ki")) &&
{A}.bool &&
{A}.int > 0 &&
{A}.string == "fish" &&
{A}.version.isGreaterThan(semver("0.0.1")) &&
{C}["quantity"].isGreaterThan(quantity("1Ki")) &&
{A}["bool"] &&
{A}["int"] > 0 &&
{A}["string"] == "fish" &&
{A}["version"].isGreaterThan(semver("0.0.1"))
""",
        True, 52, capacity={"quantity": "1Mi"},
        attributes={
            "bool": {"bool": True}, "int": {"int": 1}, "string": {"string": "fish"},
            "version": {"version": "1.0.0"},
        },
    ),
    Case(
        "three bools", f"{A}.a && {A}.b && {A}.c", True, 12,
        attributes={name: {"bool": True} for name in "abc"},
    ),
    Case(
        "domains", f'device.attributes.exists_one(x, x == "{D}")', True, 164,
        attributes={"services": {"string": "some_example_value"}},
    ),
    Case(
        "names", f'{A}.exists_one(x, x == "services")', True, 133,
        attributes={"services": {"string": "some_example_value"}},
    ),
    Case(
        "split", f'{A}.services.split("example").size() >= 2', True, 19,
        attributes={"services": {"string": "some_example_value"}},
    ),
    Case(
        "pattern", f'{A}.services.matches("[^a]?sym")', True, 18,
        attributes={"services": {"string": "asymetric"}},
    ),
    Case(
        "domains of capacity", f'device.capacity.exists_one(x, x == "{D}")', True, 164,
        capacity={"memory": "1Mi"},
    ),
    Case(
        "names of capacity", f'{C}.exists_one(x, x == "memory")', True, 133,
        capacity={"memory": "1Mi"},
    ),
    Case(
        "too dear",
        "".join(f"{ONE_TO_TEN}.all(x{n}, " for n in range(7))
        + "int('1'.find('[0-9]*')) < 100" + ")" * 7,
        "actual cost limit exceeded", 85555551,
        attributes={f"attribute{n}": {"string": "abc"} for n in range(32)},
    ),
    Case(
        "shared", "device.allowMultipleAllocations == true", True, 3, shared=True, sharing=True,
    ),
    Case("unsaid", "device.allowMultipleAllocations == false", True, 3, sharing=True),
    Case(
        "not shared", "device.allowMultipleAllocations == false", True, 3, shared=False,
        sharing=True,
    ),
    Case(
        "new, not shared", "device.allowMultipleAllocations == false", True, 3, shared=False,
        sharing=True, new=True,
    ),
    Case(
        "new, gate on", "device.allowMultipleAllocations == true", False, 3, shared=False,
        sharing=True, new=True,
    ),
    Case(
        "new, gate off", "device.allowMultipleAllocations == false",
        "compile: undefined field 'allowMultipleAllocations'", new=True,
    ),
]  # fmt: skip
