"""What a server that serves v1beta2 says to the objects of the seed, and the guide repeats."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "unit" / "user_guide_form" / "golden"
GUIDE = ROOT / "docs" / "cel.md"
BETA = "resource.k8s.io/v1beta2"
UNKNOWN = {
    "ResourceClaimTemplate": [
        "spec.spec.devices.requests[0].allocationMode",
        "spec.spec.devices.requests[0].exactly.selector",
    ],
    "ResourceSlice": ["spec.devices[0].attributes.model.stringValue"],
}
MISSING = {
    "ResourceClaimTemplate": (
        "spec.spec.devices.requests[0].exactly.deviceClassName: Required value"
    ),
    "ResourceSlice": (
        'spec.devices[0].attributes[model]: Invalid value: "": exactly one value must be specified'
    ),
}
WORDED_DIFFERENTLY = (34, 37)
"""Minors that say of an attribute without value that one is required, or which."""


def raw() -> Iterator[tuple[str, dict[str, Any]]]:
    """The v1beta2 objects of the seed as they are, by the block that they stand in."""
    for stored in sorted(GOLDEN.glob("*/yaml-*.txt")):
        found = re.split(r"^=== (.*)\n", stored.read_text("utf-8"), flags=re.MULTILINE)
        parts = dict(zip(found[1::2], found[2::2], strict=True))
        for obj in yaml.safe_load_all(parts.get("within", parts["in"])):
            if obj and obj.get("apiVersion") == BETA:
                yield f"{stored.parent.name}-{stored.stem}", obj


SEED = list(raw())
IDS = [name for name, _ in SEED]


@pytest.fixture(scope="module")
def target(target_with_v1beta2: Any) -> Any:
    return target_with_v1beta2


async def refusal(api: Any, refused: Any, obj: dict[str, Any], **query: Any) -> Any:
    metadata = {key: value for key, value in obj["metadata"].items() if key != "namespace"}
    with pytest.raises(refused) as caught:
        await api.create(f"{BETA}/{obj['kind'].lower()}s", {**obj, "metadata": metadata}, **query)
    return caught.value


@pytest.mark.parametrize(("name", "obj"), SEED, ids=IDS)
async def test_strict_validation_names_what_it_does_not_know(
    api: Any, refused: Any, name: str, obj: dict[str, Any]
) -> None:
    error = await refusal(api, refused, obj, fieldValidation="Strict")

    if "fragment" in obj["metadata"]["name"]:
        # One block shows a part of a template that has no stray field, but no class either.
        assert error.code == 422
        return
    assert error.code == 400
    for field in UNKNOWN[obj["kind"]]:
        assert f'unknown field "{field}"' in error.message


@pytest.mark.parametrize(("name", "obj"), SEED, ids=IDS)
async def test_without_it_what_is_left_is_not_enough(
    api: Any, refused: Any, name: str, obj: dict[str, Any]
) -> None:
    error = await refusal(api, refused, obj)

    field, _, text = MISSING[obj["kind"]].partition(": ")
    assert error.code == 422
    stated = dict(error.causes())  # the attributes of a device in any order
    assert field in stated
    assert text == stated[field] or api.minor in WORDED_DIFFERENTLY


def test_the_guide_repeats_what_servers_say() -> None:
    guide = GUIDE.read_text("utf-8")

    for kind, fields in UNKNOWN.items():
        assert MISSING[kind] in guide
        for field in fields:
            assert f'`unknown field "{field}"`' in guide
    assert f'no matches for kind "ResourceClaimTemplate" in version "{BETA}"' in guide
