"""What removes a feature of claims, of their classes or of what is held from a question."""

from collections.abc import Callable

from allocation.effort import MOST_RESULTS
from allocation.questions import Json, Removal, devices_of, wanted_by


def class_selectors(question: Json) -> None:
    """All but the one that tells the driver."""
    for one in question["classes"]:
        one["spec"]["selectors"] = one["spec"].get("selectors", [])[:1]
        if one["metadata"]["name"] == "any" or not one["spec"]["selectors"]:
            del one["spec"]["selectors"]


def mode_all(wanted: Json) -> None:
    if wanted["allocationMode"] == "All":
        wanted |= {"allocationMode": "ExactCount", "count": 1}


def count(wanted: Json) -> None:
    if 1 < wanted.get("count", 1) <= MOST_RESULTS / 2:
        wanted["count"] = 1


def first_available(question: Json) -> None:
    for claim in question["claims"]:
        for request in claim["spec"]["devices"]["requests"]:
            if "firstAvailable" in request:
                first = request.pop("firstAvailable")[0]
                request["exactly"] = {key: first[key] for key in first if key != "name"}


def constraints(kind: str) -> Removal:
    def remove(question: Json) -> None:
        for claim in question["claims"]:
            devices = claim["spec"]["devices"]
            if "constraints" in devices:
                kept = [one for one in devices["constraints"] if kind not in one]
                devices["constraints"] = kept
                if not kept:
                    del devices["constraints"]

    return remove


def claims(question: Json) -> None:
    del question["claims"][1:]


def requests(question: Json) -> None:
    for claim in question["claims"]:
        del claim["spec"]["devices"]["requests"][1:]


def held(kept: Callable[[Json], bool]) -> Removal:
    def remove(question: Json) -> None:
        for claim in question["allocated"]:
            devices = claim["status"]["allocation"]["devices"]
            devices["results"] = [result for result in devices["results"] if kept(result)]

    return remove


def admin_results(question: Json) -> None:
    """Let them hold their devices."""
    for claim in question["allocated"]:
        for result in claim["status"]["allocation"]["devices"]["results"]:
            result.pop("adminAccess", None)


def exclusive(result: Json) -> bool:
    return "shareID" not in result and "adminAccess" not in result


def config_of_classes(question: Json) -> None:
    for one in question["classes"]:
        one["spec"].pop("config", None)


def config_of_claims(question: Json) -> None:
    for claim in question["claims"]:
        claim["spec"]["devices"].pop("config", None)


def missing_classes(wanted: Json) -> None:
    if wanted["deviceClassName"] == "missing":
        wanted["deviceClassName"] = "any"


def unknown_capacities(question: Json) -> None:
    known = {key for _, device in devices_of(question) for key in device.get("capacity", {})}
    for claim in question["claims"]:
        for wanted in wanted_by(claim):
            asked = wanted.get("capacity", {}).get("requests", {})
            for key in set(asked) - known:
                del asked[key]
