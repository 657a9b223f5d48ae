"""What the server refuses in the requests of ResourceClaims."""

from typing import Any

import pytest

BAD_SPECS = {
    "no device class": (
        {"devices": {"requests": [{"name": "a", "exactly": {}}]}},
        [("spec.devices.requests[0].exactly.deviceClassName", "Required value")],
    ),
    "neither exactly nor firstAvailable": (
        {"devices": {"requests": [{"name": "a"}]}},
        [
            (
                "spec.devices.requests[0]",
                "Required value: exactly one of `exactly` or `firstAvailable` is required",
            )
        ],
    ),
    "count of zero with mode All": (
        {
            "devices": {
                "requests": [
                    {
                        "name": "a",
                        "exactly": {"deviceClassName": "x", "allocationMode": "All", "count": 2},
                    }
                ]
            }
        },
        [
            (
                "spec.devices.requests[0].exactly.count",
                "Invalid value: 2: must not be specified when allocationMode is 'All'",
            )
        ],
    ),
    "negative count": (
        {
            "devices": {
                "requests": [{"name": "a", "exactly": {"deviceClassName": "x", "count": -1}}]
            }
        },
        [
            (
                "spec.devices.requests[0].exactly.count",
                "Invalid value: -1: must be greater than zero",
            )
        ],
    ),
    "unknown mode": (
        {
            "devices": {
                "requests": [
                    {"name": "a", "exactly": {"deviceClassName": "x", "allocationMode": "Some"}}
                ]
            }
        },
        [
            (
                "spec.devices.requests[0].exactly.allocationMode",
                'Unsupported value: "Some": supported values: "All", "ExactCount"',
            )
        ],
    ),
    "a request twice": (
        {
            "devices": {
                "requests": [{"name": "a", "exactly": {"deviceClassName": "x"}} for _ in range(2)]
            }
        },
        [("spec.devices.requests[1]", 'Duplicate value: "a"')],
    ),
    "33 requests": (
        {
            "devices": {
                "requests": [
                    {"name": f"a{i}", "exactly": {"deviceClassName": "x"}} for i in range(33)
                ]
            }
        },
        [("spec.devices.requests", "Too many: 33: must have at most 32 items")],
    ),
    "a selector without cel": (
        {
            "devices": {
                "requests": [{"name": "a", "exactly": {"deviceClassName": "x", "selectors": [{}]}}]
            }
        },
        [("spec.devices.requests[0].exactly.selectors[0].cel", "Required value")],
    ),
    "a selector of more than 10 KiB": (
        {
            "devices": {
                "requests": [
                    {
                        "name": "a",
                        "exactly": {
                            "deviceClassName": "x",
                            "selectors": [{"cel": {"expression": "true" + " " * 10240}}],
                        },
                    }
                ]
            }
        },
        [
            (
                "spec.devices.requests[0].exactly.selectors[0].cel.expression",
                "Too long: may not be more than 10240 bytes",
            )
        ],
    ),
    "a constraint on an unknown request": (
        {
            "devices": {
                "requests": [{"name": "a", "exactly": {"deviceClassName": "x"}}],
                "constraints": [{"requests": ["b"], "matchAttribute": "example.com/x"}],
            }
        },
        [
            (
                "spec.devices.constraints[0].requests[0]",
                'Invalid value: "b": must be the name of a request in the claim or the name of a '
                "request and a subrequest separated by '/'",
            )
        ],
    ),
    "an attribute without a domain": (
        {
            "devices": {
                "requests": [{"name": "a", "exactly": {"deviceClassName": "x"}}],
                "constraints": [{"matchAttribute": "uuid"}],
            }
        },
        [
            (
                "spec.devices.constraints[0].matchAttribute",
                'Invalid value: "uuid": a fully qualified name must be a domain and a name '
                "separated by a slash",
            )
        ],
    ),
    "a config without a driver": (
        {
            "devices": {
                "requests": [{"name": "a", "exactly": {"deviceClassName": "x"}}],
                "config": [{"opaque": {"driver": "", "parameters": {"a": 1}}}],
            }
        },
        [("spec.devices.config[0].opaque.driver", "Required value")],
    ),
    "a toleration without an operator's value": (
        {
            "devices": {
                "requests": [
                    {
                        "name": "a",
                        "exactly": {
                            "deviceClassName": "x",
                            "tolerations": [{"key": "a", "operator": "Some"}],
                        },
                    }
                ]
            }
        },
        [
            (
                "spec.devices.requests[0].exactly.tolerations[0].operator",
                'Unsupported value: "Some": supported values: "Equal", "Exists"',
            )
        ],
    ),
}

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
TWICE_37 = (
    'Duplicate value: {"name":"a","exactly":{"deviceClassName":"x","allocationMode":"ExactCount",'
    '"count":1}}'
)
IN_OTHER_MINORS = {
    34: {
        "a request twice": [("spec.devices.requests[1].name", 'Duplicate value: "a"')],
        "an attribute without a domain": [
            (
                "spec.devices.constraints[0].matchAttribute",
                'Invalid value: "uuid": must include a domain',
            )
        ],
        "a config without a driver": [
            ("spec.devices.config[0].opaque.driver", "Required value"),
            ("spec.devices.config[0].opaque.driver", f'Invalid value: "": {SUBDOMAIN}'),
        ],
    },
    37: {
        "a request twice": [("spec.devices.requests[1]", TWICE_37)],
    },
}
"""What other minors than the sandbox's say, where it differs."""
DROPPED_TOLERATION = "a toleration without an operator's value"


@pytest.mark.parametrize("what", BAD_SPECS)
async def test_a_wrong_spec_is_refused(api: Any, refused: Any, what: str) -> None:
    spec, expected = BAD_SPECS[what]
    expected = IN_OTHER_MINORS.get(api.minor, {}).get(what, expected)
    claim = {"metadata": {"name": "bad"}, "spec": spec}
    if what == DROPPED_TOLERATION and not api.keeps_tolerations:
        made = await api.create("resourceclaims", claim)
        assert "tolerations" not in made["spec"]["devices"]["requests"][0]["exactly"]
        return

    with pytest.raises(refused) as caught:
        await api.create("resourceclaims", claim)

    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert caught.value.causes() == expected
    if len(expected) == 1:
        field, text = expected[0]
        message = f'ResourceClaim.resource.k8s.io "bad" is invalid: {field}: {text}'
        assert caught.value.message == message


async def test_a_wrong_quantity_is_refused(api: Any, refused: Any) -> None:
    capacity = {"requests": {"vram": "16Gigs"}}
    claim = api.claim("bad", api.request("gpu", capacity=capacity))

    with pytest.raises(refused) as caught:
        await api.create("resourceclaims", claim)

    assert caught.value.code == 400


async def test_a_selector_that_does_not_compile_is_refused(api: Any, refused: Any) -> None:
    selector = {"cel": {"expression": 'device.attributes["model"] == "A100"'}}
    claim = api.claim("bad", api.request("gpu", selectors=[selector]))

    with pytest.raises(refused) as caught:
        await api.create("resourceclaims", claim)

    [(field, message)] = caught.value.causes()
    assert field == "spec.devices.requests[0].exactly.selectors[0].cel.expression"
    assert "no matching overload" in message
