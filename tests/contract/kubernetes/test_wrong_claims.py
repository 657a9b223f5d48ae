"""What is wrong with the requests of a claim is refused by name."""

from typing import Any

import pytest

R = "spec.devices.requests"
C = "spec.devices.constraints[0]"
F = "spec.devices.config[0]"
OPAQUE = {"driver": "example.com", "parameters": {"a": 1}}


def asked(*requests: Any, **more: Any) -> dict[str, Any]:
    return {"devices": {"requests": list(requests), **more}}


def exactly(name: str = "a", **more: Any) -> dict[str, Any]:
    return asked({"name": name, "exactly": {"deviceClassName": "x", **more}})


def option(name: str = "o", **more: Any) -> dict[str, Any]:
    return {"name": name, "deviceClassName": "x", **more}


def first(*options: Any, **more: Any) -> dict[str, Any]:
    return asked({"name": "a", "firstAvailable": list(options)}, **more)


def constrained(**constraint: Any) -> dict[str, Any]:
    return first(option(), constraints=[constraint])


def configured(**config: Any) -> dict[str, Any]:
    return first(option(), config=[config])


def of_parameters(parameters: Any) -> dict[str, Any]:
    return configured(opaque={**OPAQUE, "parameters": parameters})


def tolerating(**toleration: Any) -> dict[str, Any]:
    return exactly(tolerations=[toleration])


ON_X = {"matchAttribute": "example.com/x"}
WRONG: dict[str, tuple[Any, list[str]]] = {
    "no name": (exactly(""), [f'{R}[0].name: Invalid value: "": a lowercase RFC 1123 label']),
    "a name that is not a label": (
        exactly("A_b"),
        [f'{R}[0].name: Invalid value: "A_b": a lowercase RFC 1123 label'],
    ),
    "a class that is not a name": (
        exactly(deviceClassName="A_b"),
        [f'{R}[0].exactly.deviceClassName: Invalid value: "A_b": a lowercase RFC 1123 subdoma'],
    ),
    "exactly and alternatives": (
        asked({"name": "a", "exactly": {"deviceClassName": "x"}, "firstAvailable": [option()]}),
        [f"{R}[0]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is requi"],
    ),
    "an empty list of alternatives": (
        first(),
        [f"{R}[0]: Required value: exactly one of `exactly` or `firstAvailable` is required"],
    ),
    "an alternative without name": (
        first(option("")),
        [f'{R}[0].firstAvailable[0].name: Invalid value: "": a lowercase RFC 1123 label'],
    ),
    "an alternative without class": (
        first({"name": "o"}),
        [f"{R}[0].firstAvailable[0].deviceClassName: Required value"],
    ),
    "an alternative twice": (
        first(option(), option()),
        [f'{R}[0].firstAvailable[1]: Duplicate value: "o"'],
    ),
    "an alternative's count with mode All": (
        first(option(allocationMode="All", count=1)),
        [f"{R}[0].firstAvailable[0].count: Invalid value: 1: must not be specified when alloc"],
    ),
    "an alternative's negative count": (
        first(option(count=-1)),
        [f"{R}[0].firstAvailable[0].count: Invalid value: -1: must be greater than zero"],
    ),
    "an alternative's unknown mode": (
        first(option(allocationMode="Most")),
        [f'{R}[0].firstAvailable[0].allocationMode: Unsupported value: "Most": supported valu'],
    ),
    "an alternative's selector without cel": (
        first(option(selectors=[{}])),
        [f"{R}[0].firstAvailable[0].selectors[0].cel: Required value"],
    ),
    "an empty expression": (
        exactly(selectors=[{"cel": {"expression": ""}}]),
        [f'{R}[0].exactly.selectors[0].cel.expression: Invalid value: "": compilation failed:'],
    ),
    "no expression": (
        exactly(selectors=[{"cel": {}}]),
        [f'{R}[0].exactly.selectors[0].cel.expression: Invalid value: "": compilation failed:'],
    ),
    "a toleration of a value with Exists": (
        tolerating(key="a", operator="Exists", value="b"),
        [f'{R}[0].exactly.tolerations[0].value: Invalid value: "b": must be empty for operato'],
    ),
    "a toleration of a value that is not a label": (
        tolerating(key="a", value="-"),
        [f'{R}[0].exactly.tolerations[0].value: Invalid value: "-": a valid label must be an '],
    ),
    "a toleration of a key that is not a label": (
        tolerating(key="-"),
        [f'{R}[0].exactly.tolerations[0].key: Invalid value: "-": name part'],
    ),
    "a toleration of an unknown effect": (
        tolerating(key="a", effect="Maybe"),
        [f'{R}[0].exactly.tolerations[0].effect: Unsupported value: "Maybe": supported values'],
    ),
    "a constraint without attribute": (
        constrained(),
        [f'{C}: Required value: exactly one of "matchAttribute" or "distinctAttribute" is req'],
    ),
    "a constraint on an unknown alternative": (
        constrained(requests=["a/b"], **ON_X),
        [f'{C}.requests[0]: Invalid value: "a/b": must be the name of a request in the claim '],
    ),
    "a constraint on too long a path": (
        constrained(requests=["a/o/x"], **ON_X),
        [f'{C}.requests[0]: Invalid value: "a/o/x": must be the name of a request in the clai'],
    ),
    "a constraint on a request twice": (
        constrained(requests=["a", "a"], **ON_X),
        [f'{C}.requests[1]: Duplicate value: "a"'],
    ),
    "a constraint on an empty name": (
        constrained(requests=[""], **ON_X),
        [
            f'{C}.requests[0]: Invalid value: "": a lowercase RFC 1123 label',
            f'{C}.requests[0]: Invalid value: "": must be the name of a request in the claim or ',
        ],
    ),
    "an attribute without domain": (
        constrained(matchAttribute="/x"),
        [f'{C}.matchAttribute: Invalid value: "": the domain must not be empty'],
    ),
    "an attribute without name": (
        constrained(matchAttribute="example.com/"),
        [f'{C}.matchAttribute: Invalid value: "": the name must not be empty'],
    ),
    "an attribute that is not an identifier": (
        constrained(matchAttribute="example.com/a-b"),
        [f'{C}.matchAttribute: Invalid value: "a-b": a valid C identifier must start with alp'],
    ),
    "an invalid attribute domain": (
        constrained(matchAttribute="Example_com/a"),
        [f'{C}.matchAttribute: Invalid value: "Example_com": a lowercase RFC 1123 subdomain'],
    ),
    "a distinct attribute without domain": (
        constrained(distinctAttribute="x"),
        [f'{C}.distinctAttribute: Invalid value: "x": a fully qualified name must be a domain'],
    ),
    "an empty attribute": (
        constrained(matchAttribute=""),
        [
            f'{C}.matchAttribute: Invalid value: "": a valid C identifier must start with alphab',
            f'{C}.matchAttribute: Invalid value: "": a fully qualified name must be a domain and',
        ],
    ),
    "a config without opaque": (configured(), [f"{F}.opaque: Required value"]),
    "a config for an unknown request": (
        configured(requests=["b"], opaque=OPAQUE),
        [f'{F}.requests[0]: Invalid value: "b": must be the name of a request in the claim or'],
    ),
    "a config for a request twice": (
        configured(requests=["a", "a"], opaque=OPAQUE),
        [f'{F}.requests[1]: Duplicate value: "a"'],
    ),
    "a config without parameters": (
        configured(opaque={"driver": "example.com"}),
        [f"{F}.opaque.parameters: Required value"],
    ),
    "a config of parameters that are null": (
        of_parameters(None),
        [f"{F}.opaque.parameters: Required value"],
    ),
    "a config of a list": (
        of_parameters([1]),
        [f'{F}.opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON obje'],
    ),
    "a config of a text": (
        of_parameters("a"),
        [f'{F}.opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON obje'],
    ),
    "a config's driver that is not a domain": (
        configured(opaque={**OPAQUE, "driver": "a_b"}),
        [f'{F}.opaque.driver: Invalid value: "a_b": a lowercase RFC 1123 subdomain'],
    ),
}
IN_OTHER_MINORS: dict[int, dict[str, list[str]]] = {
    34: {
        "an alternative twice": [f"{R}[0].firstAvailable[1].name: Duplicate value"],
        "a constraint without attribute": [f"{C}.matchAttribute: Required value"],
        "an attribute without domain": [f"{C}.matchAttribute: Required value"],
        "an attribute without name": [f"{C}.matchAttribute: Required value"],
        "an empty attribute": [f"{C}.matchAttribute: Required value"],
    },
    35: {"a constraint without attribute": [f"{C}.matchAttribute: Required value"]},
}
"""Of other minors than the sandbox's: other fields and types."""
TAKEN = {
    "a constraint on a request and its alternatives": constrained(requests=["a"], **ON_X),
    "a constraint on one alternative": constrained(requests=["a/o"], **ON_X),
    "a constraint on all requests": constrained(**ON_X),
    "both kinds of constraints in two": first(
        option(), constraints=[ON_X, {"distinctAttribute": "example.com/y"}]
    ),
    "an attribute of three parts": constrained(matchAttribute="a/b/c"),
    "a config for one alternative": configured(requests=["a/o"], opaque=OPAQUE),
    "a config of no parameters": of_parameters({}),
    "a driver in upper case": configured(opaque={**OPAQUE, "driver": "Example.COM"}),
    "an alternative's tolerations and capacity": first(
        option(
            tolerations=[{"operator": "Exists"}],
            capacity={"requests": {"vram": "1Gi"}},
        )
    ),
    "a capacity of any name": exactly(capacity={"requests": {"not/a name": "-1"}}),
    "17 tolerations": exactly(
        tolerations=[{"key": f"k{i}", "operator": "Exists"} for i in range(17)]
    ),
    "a toleration twice": exactly(tolerations=[{"operator": "Exists"}] * 2),
    "a count of many": exactly(count=1000),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_claim_is_refused(api: Any, invalid: Any, what: str) -> None:
    spec, expected = WRONG[what]
    api.needs_kept(spec)

    with invalid(expected, IN_OTHER_MINORS, what):
        await api.create("resourceclaims", {"metadata": {"name": "bad"}, "spec": spec})


@pytest.mark.parametrize("what", TAKEN)
async def test_a_claim_that_looks_wrong_may_be_accepted(api: Any, what: str) -> None:
    api.needs_kept(TAKEN[what])

    await api.create("resourceclaims", {"metadata": {"name": "one"}, "spec": TAKEN[what]})
