"""Validation of request policies of shared capacities."""

import itertools
from typing import Any

from . import quantities
from .quantities import ApiQuantity
from .status import FieldError, Object, duplicate, forbidden_field, invalid, required, too_many

_MAX_VALID_VALUES = 10


def policy_errors(capacity: Object, field: str, *, shared: bool) -> list[FieldError]:
    """Findings about the policy of one capacity; only shared devices may have one."""
    policy = capacity.get("requestPolicy")
    if policy is None:
        return []
    if not shared:
        return [forbidden_field(field, "allowMultipleAllocations must be true")]
    size = quantities.parse(capacity.get("value", "0"))
    values, limits = policy.get("validValues") or [], policy.get("validRange")
    if values and limits is not None:
        text = (
            'exactly one policy can be specified, cannot specify "validValues" and "validRange" '
            "at the same time"
        )
        return [forbidden_field(field, text)]
    if values:
        return _with_default(
            policy, field, "validValues", lambda d: _values(values, d, size, field)
        )
    if limits is not None:
        return _with_default(policy, field, "validRange", lambda d: _range(limits, d, size, field))
    return []


def _with_default(policy: Object, field: str, kind: str, check: Any) -> list[FieldError]:
    if "default" not in policy:
        return [required(f"{field}.default", f"required when {kind} is defined")]
    result: list[FieldError] = check(quantities.parse(policy["default"]))
    return result


def _values(
    values: list[str], default: ApiQuantity, size: ApiQuantity, field: str
) -> list[FieldError]:
    field = f"{field}.validValues"
    options = [quantities.parse(value) for value in values]
    found = [
        invalid(f"{field}[{index + 1}]", str(after), "values must be sorted in ascending order")
        for index, (before, after) in enumerate(itertools.pairwise(options))
        if before.value > after.value
    ]
    if len(options) > _MAX_VALID_VALUES:
        found.append(too_many(field, len(options), _MAX_VALID_VALUES))
    else:
        for index, option in enumerate(options):
            if option.value > size.value:
                text = f"option is larger than capacity value: {size}"
                found.append(invalid(f"{field}[{index}]", str(option), text))
            if option.whole() in [earlier.whole() for earlier in options[:index]]:
                found.append(duplicate(f"{field}[{index}]", str(option.whole())))
    # If there are too many, they are not compared one by one: the default counts as not found.
    crowded = len(options) > _MAX_VALID_VALUES
    if crowded or all(option.value != default.value for option in options):
        text = "default value is not valid according to the requestPolicy"
        found.append(invalid(field, str(default), text))
    return found


def _range(limits: Object, default: ApiQuantity, size: ApiQuantity, field: str) -> list[FieldError]:
    field = f"{field}.validRange"
    if "min" not in limits:
        return [required(f"{field}.min", "required when validRange is defined")]
    least = quantities.parse(limits["min"])
    found: list[FieldError] = []

    def refuse(bad: bool, name: str, shown: ApiQuantity, text: str) -> None:
        if bad:
            found.append(invalid(f"{field}.{name}", str(shown), text))

    refuse(least.value > size.value, "min", least, f"min is larger than capacity value: {size}")
    refuse(default.value < least.value, "min", default, f"default is less than min: {least}")
    most = quantities.parse(limits["max"]) if "max" in limits else None
    if most is not None:
        refuse(least.value > most.value, "max", least, f"min is larger than max: {most}")
        refuse(most.value > size.value, "max", most, f"max is larger than capacity value: {size}")
        refuse(default.value > most.value, "max", default, f"default is more than max: {most}")
    if "step" in limits:
        _step(quantities.parse(limits["step"]), least, default, most, size, refuse)
    return found


def _step(
    step: ApiQuantity,
    least: ApiQuantity,
    default: ApiQuantity,
    most: ApiQuantity | None,
    size: ApiQuantity,
    refuse: Any,
) -> None:
    added = ApiQuantity(least.value + step.value, least.family)
    text = f"one step {added} is larger than capacity value: {size}"
    refuse(added.value > size.value, "step", step, text)
    if step.whole() == 0:
        return
    text = f"value is not a multiple of a given step ({step}) from ({least})"
    for value in [default] if most is None else [default, most]:
        refuse((value.whole() - least.whole()) % step.whole() != 0, "step", value, text)
