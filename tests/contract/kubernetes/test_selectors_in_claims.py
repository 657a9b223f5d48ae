"""Selectors of devices: dray.cel and the server refuse the same, in the same words."""

import re
from typing import Any

import pytest

from dray.cel.admission import admission
from dray.cel.environment import Environment, Mode, environment

FIELD = "spec.devices.requests[0].exactly.selectors[0].cel.expression"
HINT = re.compile(r" \(nearest known name: .*\)")
D = 'device.attributes["gpus.example.com"]'
C = 'device.capacity["gpus.example.com"]'
TAKEN = [
    "true",
    f'{D}.model == "A100" && has({D}.qos) // why',
    f'{C}.vram.compareTo(quantity("40Gi")) >= 0',
    f"{C}.vram.asApproximateFloat() > 1e9",
    'cel.bind(d, device.attributes["a"], d.b > 1)',
    'device.attributes[?"a"].?b.orValue(true)',
    "device.allowMultipleAllocations",
    "lists.range(3).size() == 3",
    f'{D}.version.isGreaterThan(semver("1.0.0"))',
    "['a', 'b'].all(x, x in [r'a', '''b'''])",
]
NOT_BEFORE = {"lists.range(3).size() == 3": 35}
"""The first minor that takes an expression, of those that the oldest does not take."""
REFUSED = [
    'device.attributes["model"] == "A100"',
    'device.capacity["vram"].AsApproximateFloat64() >= 100',
    f"{C}.vram >= 100",
    "device.spec == 1",
    'device.driver ==\n  "a" + 1',
    "nonsense",
    "1 + 1",
    'device.driver.matches("(")',
    "[1, 'a'].isSorted()",
    '["a", "b"].isSorted()',
    f'{D}.model.includes("A100")',
    f'{D}.names.exists(x, x == "a")',
    "true" + " " * 10_240,
]


def with_selector(api: Any, expression: str) -> Any:
    selector = {"cel": {"expression": expression}}
    return api.claim("selects", api.request("gpu", selectors=[selector]))


def language(api: Any) -> Environment:
    """The language of new expressions, as the server's version and gates have it."""
    return environment(
        api.keeps.version.partition("+")[0],
        Mode.NEW,
        consumable_capacity=api.keeps.consumable_capacity,
        list_attributes=api.keeps.list_attributes,
    )


def taken(api: Any, expression: str) -> bool:
    if expression == "device.allowMultipleAllocations":
        return bool(api.keeps.consumable_capacity)
    return bool(api.minor >= NOT_BEFORE.get(expression, 0))


async def is_refused_in_drays_words(api: Any, refused: Any, expression: str) -> None:
    found = admission(expression, language(api))

    with pytest.raises(refused) as caught:
        await api.create("resourceclaims", with_selector(api, expression))

    [(field, message)] = caught.value.causes()
    assert field == FIELD
    # dray adds the nearest known name.
    assert HINT.sub("", message).endswith(HINT.sub("", found.text))
    assert found.text


@pytest.mark.parametrize("expression", TAKEN)
async def test_selectors_that_dray_takes_are_taken(api: Any, refused: Any, expression: str) -> None:
    assert (admission(expression, language(api)).verdict == "ok") == taken(api, expression)
    if not taken(api, expression):
        await is_refused_in_drays_words(api, refused, expression)
        return

    await api.create("resourceclaims", with_selector(api, expression))


@pytest.mark.parametrize("expression", REFUSED, ids=lambda text: text[:40])
async def test_selectors_that_dray_refuses_are_refused_in_the_same_words(
    api: Any, refused: Any, expression: str
) -> None:
    await is_refused_in_drays_words(api, refused, expression)
