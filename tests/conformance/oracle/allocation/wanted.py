"""What a request says about single devices: selectors, tolerations, capacity."""

from fractions import Fraction
from math import ceil
from typing import Any

from allocation.quantities import amount_of
from allocation.world import Usable

from dray.cel.device import view_from_json
from dray.cel.environment import Mode, environment
from dray.cel.errors import CelCompileError, CelEvaluationError
from dray.cel.eval.program import compile

Json = dict[str, Any]


def alternatives(request: Json) -> dict[str, Json]:
    """What may be given for a request, by the name that a result then has."""
    if "exactly" in request:
        return {request["name"]: request["exactly"]}
    return {f"{request['name']}/{one['name']}": one for one in request["firstAvailable"]}


def is_selected(question: Json, wanted: Json, usable: Usable) -> bool:
    """Whether all selectors of class and request hold for the device."""
    classes = {one["metadata"]["name"]: one["spec"] for one in question["classes"]}
    of_class = classes.get(wanted["deviceClassName"], {}).get("selectors") or []
    language = environment(question["k8s"], Mode.STORED)
    view = view_from_json(usable.spec["driver"], usable.device)
    try:
        return all(
            compile(one["cel"]["expression"], language).matches(view)
            for one in (*of_class, *(wanted.get("selectors") or []))
        )
    except (CelCompileError, CelEvaluationError):
        return False


def tolerates(wanted: Json, device: Json) -> bool:
    """Whether every taint that keeps claims away is tolerated."""
    return all(
        any(_tolerates(one, taint) for one in wanted.get("tolerations") or [])
        for taint in device.get("taints") or []
        if taint["effect"] in ("NoSchedule", "NoExecute")
    )


def _tolerates(toleration: Json, taint: Json) -> bool:
    for key in ("effect", "key"):
        if toleration.get(key) and toleration[key] != taint[key]:
            return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("value", "") == taint.get("value", ""))


def consumed(wanted: Json, device: Json, minor: str) -> dict[str, Fraction] | None:
    """What a share of the device takes for the request; None if it can't be had."""
    asked = (wanted.get("capacity") or {}).get("requests") or {}
    capacities = device.get("capacity") or {}
    if set(asked) - set(capacities):
        return None
    found = {}
    for key, capacity in capacities.items():
        amount = _rounded(asked.get(key), capacity, whole=minor != "1.37")
        if amount is None:
            return None
        found[key] = amount
    return found


def _rounded(asked: str | None, capacity: Json, *, whole: bool) -> Fraction | None:
    """The least valid amount that is enough; ``whole`` minors count steps in whole units."""
    value = amount_of(capacity["value"])
    policy = capacity.get("requestPolicy") or {}
    if asked is None:
        return amount_of(policy["default"]) if "default" in policy else value
    amount = amount_of(asked)
    if values := policy.get("validValues"):
        return min((one for one in map(amount_of, values) if one >= amount), default=None)
    if "validRange" in policy:
        return _in_range(amount, policy["validRange"], whole=whole)
    return amount


def _in_range(amount: Fraction, bounds: Json, *, whole: bool) -> Fraction | None:
    least = amount_of(bounds["min"])
    if amount < least:
        amount = least
    elif "step" in bounds:
        step = amount_of(bounds["step"])
        if whole:
            least, step, amount = (Fraction(ceil(one)) for one in (least, step, amount))
        amount = least + step * ceil((amount - least) / step)
    if "max" in bounds and amount > amount_of(bounds["max"]):
        return None
    return amount
