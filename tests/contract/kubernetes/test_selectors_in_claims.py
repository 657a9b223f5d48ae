"""Selectors of devices: dray.cel and the server refuse the same, in the same words."""

import re
from typing import Any

import pytest

from dray.cel.admission import admission
from dray.cel.environment import Environment, Mode

LANGUAGE = Environment(mode=Mode.NEW)
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


@pytest.mark.parametrize("expression", TAKEN)
async def test_selectors_that_dray_takes_are_taken(api: Any, expression: str) -> None:
    assert admission(expression, LANGUAGE).verdict == "ok"

    await api.create("resourceclaims", with_selector(api, expression))


@pytest.mark.parametrize("expression", REFUSED, ids=lambda text: text[:40])
async def test_selectors_that_dray_refuses_are_refused_in_the_same_words(
    api: Any, refused: Any, expression: str
) -> None:
    found = admission(expression, LANGUAGE)

    with pytest.raises(refused) as caught:
        await api.create("resourceclaims", with_selector(api, expression))

    [(field, message)] = caught.value.causes()
    assert field == FIELD
    # dray adds the nearest known name.
    assert HINT.sub("", message).endswith(HINT.sub("", found.text))
    assert found.text
