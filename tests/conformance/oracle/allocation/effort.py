"""Keep the search small: the allocator tries every combination of devices before it gives up."""

from math import comb, perm, prod
from typing import Any, Final

Json = dict[str, Any]

MOST_COMBINATIONS: Final = 20_000
MOST_RESULTS: Final = 32
TRIES_EVERY_ORDER: Final = ("1.34", "1.35")
"""Minors that start at the first device again for each next one of a request."""


def bounded(question: Json) -> Json:
    """The question, asking for fewer devices where there would be too many combinations."""
    devices = sum(len(one["spec"].get("devices", [])) for one in question["slices"])
    while _combinations(question, devices) > MOST_COMBINATIONS:
        largest = max(_countable(question), key=lambda wanted: int(wanted["count"]))
        if largest["count"] == 1:
            _drop_last(question)
        else:
            largest["count"] = min(largest["count"], devices, MOST_RESULTS) - 1
    return question


def _wanted(claim: Json) -> list[list[Json]]:
    """Of each request the alternatives."""
    return [
        [request["exactly"]] if "exactly" in request else request["firstAvailable"]
        for request in claim["spec"]["devices"]["requests"]
    ]


def _combinations(question: Json, devices: int) -> int:
    claims = [_wanted(claim) for claim in question["claims"]]
    if any(sum(_least(one) for one in requests) > MOST_RESULTS for requests in claims):
        return 0  # refused before the search
    return prod(
        sum(_ways(wanted, devices, question["k8s"]) for wanted in alternatives)
        for requests in claims
        for alternatives in requests
    )


def _least(alternatives: list[Json]) -> int:
    return min(int(wanted.get("count", 0)) for wanted in alternatives)


def _ways(wanted: Json, devices: int, minor: str) -> int:
    """How many sets of devices may be tried, or of 1.34 and 1.35 how many sequences.

    None fails before it is complete, but for one that is too large for a claim.
    """
    if wanted["allocationMode"] == "All":
        return 1
    count = int(wanted["count"])
    if minor in TRIES_EVERY_ORDER:
        return 1 if count > MOST_RESULTS else sum(perm(devices, n) for n in range(count + 1))
    tried = min(count, devices)
    return max(1, sum(comb(devices, n) for n in range(tried + 1)))


def _countable(question: Json) -> list[Json]:
    return [
        wanted
        for claim in question["claims"]
        for alternatives in _wanted(claim)
        for wanted in alternatives
        if wanted["allocationMode"] == "ExactCount"
    ]


def _drop_last(question: Json) -> None:
    """Ask for one request less, or for one claim less."""
    requests = question["claims"][-1]["spec"]["devices"]["requests"]
    if len(requests) > 1:
        gone = requests.pop()["name"]
        _forget(question["claims"][-1], gone)
    else:
        question["claims"].pop()


def _forget(claim: Json, gone: str) -> None:
    devices = claim["spec"]["devices"]
    for key in ("constraints", "config"):
        for entry in devices.get(key, []):
            kept = [name for name in entry.get("requests", []) if name.split("/")[0] != gone]
            if entry.pop("requests", None) and kept:
                entry["requests"] = kept
