"""The features that cases are made of, each told by what removes it from a question.

A feature is in a case if removing it changes the question; it decides the case if the answer
changes as well.
"""

import json
import marshal
from collections.abc import Callable, Iterator
from typing import Any, Final

from allocation.capacities import ODD
from allocation.effort import MOST_RESULTS
from allocation.themes import ON

Json = dict[str, Any]
Removal = Callable[[Json], None]
"""Takes a feature out of a question that it may change."""


def features_of(question: Json) -> Iterator[tuple[str, Json]]:
    """Each feature of the question, and the question without it."""
    text = json.dumps(question)
    packed = marshal.dumps(question)  # the fastest copy there is; five thousand cases need many
    for name, remove in FEATURES.items():
        if not any(word in text for word in _WORDS.get(name, [""])):
            continue
        without = marshal.loads(packed)
        remove(without)
        if without != question:
            yield name, without


def wanted_by(claim: Json) -> Iterator[Json]:
    """The exact requests and the subrequests of a claim."""
    for request in claim["spec"]["devices"]["requests"]:
        yield from request.get("firstAvailable", [request.get("exactly")])


def devices_of(question: Json) -> Iterator[tuple[Json, Json]]:
    """Each device with the spec of its slice."""
    for one in question["slices"]:
        for device in one["spec"].get("devices", []):
            yield one["spec"], device


def _each_wanted(change: Callable[[Json], object]) -> Removal:
    def remove(question: Json) -> None:
        for claim in question["claims"]:
            for wanted in wanted_by(claim):
                change(wanted)

    return remove


def _each_device(change: Callable[[Json], object]) -> Removal:
    def remove(question: Json) -> None:
        for _, device in devices_of(question):
            change(device)

    return remove


def _without(*keys: str) -> Callable[[Json], None]:
    def change(holder: Json) -> None:
        for key in keys:
            holder.pop(key, None)

    return change


def _class_selectors(question: Json) -> None:
    """All but the one that tells the driver."""
    for one in question["classes"]:
        one["spec"]["selectors"] = one["spec"].get("selectors", [])[:1]
        if one["metadata"]["name"] == "any" or not one["spec"]["selectors"]:
            del one["spec"]["selectors"]


def _mode_all(wanted: Json) -> None:
    if wanted["allocationMode"] == "All":
        wanted |= {"allocationMode": "ExactCount", "count": 1}


def _count(wanted: Json) -> None:
    if 1 < wanted.get("count", 1) <= MOST_RESULTS / 2:
        wanted["count"] = 1


def _first_available(question: Json) -> None:
    for claim in question["claims"]:
        for request in claim["spec"]["devices"]["requests"]:
            if "firstAvailable" in request:
                first = request.pop("firstAvailable")[0]
                request["exactly"] = {key: first[key] for key in first if key != "name"}


def _constraints(kind: str) -> Removal:
    def remove(question: Json) -> None:
        for claim in question["claims"]:
            devices = claim["spec"]["devices"]
            if "constraints" in devices:
                kept = [one for one in devices["constraints"] if kind not in one]
                devices["constraints"] = kept
                if not kept:
                    del devices["constraints"]

    return remove


def _policies(*path: str) -> Removal:
    """Take the last key of ``path`` from every request policy."""

    def change(device: Json) -> None:
        for capacity in device.get("capacity", {}).values():
            holder = capacity
            for key in path[:-1]:
                holder = holder.get(key, {})
            holder.pop(path[-1], None)

    return _each_device(change)


def _not_shared(device: Json) -> None:
    device.pop("allowMultipleAllocations", None)
    for capacity in device.get("capacity", {}).values():
        capacity.pop("requestPolicy", None)


def _counters_of_shared(device: Json) -> None:
    if device.get("allowMultipleAllocations"):
        device.pop("consumesCounters", None)


def _taints(effect: str) -> Callable[[Json], None]:
    def change(device: Json) -> None:
        if any(taint["effect"] == effect for taint in device.get("taints", [])):
            device["taints"] = [taint for taint in device["taints"] if taint["effect"] != effect]

    return change


def _harmless_taints(device: Json) -> None:
    """Let them have an effect."""
    for taint in device.get("taints", []):
        if taint["effect"] == "None":
            taint["effect"] = "NoSchedule"


def _reach(question: Json, kind: str, instead: Json) -> None:
    for one in question["slices"]:
        spec = one["spec"]
        if kind in spec and spec[kind] != "node-2":
            del spec[kind]
            spec |= instead
            for device in spec.get("devices", []):
                _without("nodeName", "nodeSelector", "allNodes")(device)


def _reached_by(kind: str, instead: Json) -> Removal:
    return lambda question: _reach(question, kind, instead)


def _elsewhere(question: Json) -> None:
    here = question["node"]["metadata"]["name"]
    kept = [one for one in question["slices"] if one["spec"].get("nodeName", here) == here]
    question["slices"] = kept


def _pool(one: Json) -> tuple[str, str]:
    return one["spec"]["driver"], one["spec"]["pool"]["name"]


def _newest(question: Json) -> dict[tuple[str, str], int]:
    newest: dict[tuple[str, str], int] = {}
    for one in question["slices"]:
        generation = one["spec"]["pool"]["generation"]
        newest[_pool(one)] = max(newest.get(_pool(one), 0), generation)
    return newest


def _generations(question: Json) -> None:
    newest = _newest(question)
    question["slices"] = [
        one for one in question["slices"] if one["spec"]["pool"]["generation"] == newest[_pool(one)]
    ]


def _slice_counts(question: Json) -> None:
    counts: dict[tuple[tuple[str, str], int], int] = {}
    for one in question["slices"]:
        key = (_pool(one), one["spec"]["pool"]["generation"])
        counts[key] = counts.get(key, 0) + 1
    for one in question["slices"]:
        pool = one["spec"]["pool"]
        if counts[_pool(one), pool["generation"]] != pool["resourceSliceCount"]:
            pool["resourceSliceCount"] = counts[_pool(one), pool["generation"]]


def _duplicates(question: Json) -> None:
    seen: set[tuple[object, ...]] = set()
    for spec, device in devices_of(question):
        key = (spec["driver"], spec["pool"]["name"], spec["pool"]["generation"], device["name"])
        if key in seen:
            device["name"] += "-again"
        seen.add(key)


def _broken_counters(question: Json) -> None:
    sets: set[str] = set()
    for one in question["slices"]:
        for entry in one["spec"].get("sharedCounters", []):
            name = f"{_pool(one)} {one['spec']['pool']['generation']} {entry['name']}"
            if name in sets:
                entry["name"] += "-again"
            sets.add(name)
    for _, device in devices_of(question):
        if "consumesCounters" in device:
            kept = [one for one in device["consumesCounters"] if one["counterSet"] != "set-9"]
            device["consumesCounters"] = kept
            for entry in kept:
                entry["counters"].pop("absent", None)


def _drivers(question: Json) -> None:
    if question["slices"]:
        first = question["slices"][0]["spec"]["driver"]
        kept = [one for one in question["slices"] if one["spec"]["driver"] == first]
        question["slices"] = kept


def _same_pool_names(question: Json) -> None:
    drivers: dict[str, str] = {}
    for one in question["slices"]:
        name = one["spec"]["pool"]["name"]
        if drivers.setdefault(name, one["spec"]["driver"]) != one["spec"]["driver"]:
            one["spec"]["pool"]["name"] = f"{name}-again"
            _rename_held(question, one["spec"]["driver"], name)


def _rename_held(question: Json, driver: str, pool: str) -> None:
    for claim in question["allocated"]:
        for result in claim["status"]["allocation"]["devices"]["results"]:
            if (result["driver"], result["pool"]) == (driver, pool):
                result["pool"] = f"{pool}-again"


def _claims(question: Json) -> None:
    del question["claims"][1:]


def _requests(question: Json) -> None:
    for claim in question["claims"]:
        del claim["spec"]["devices"]["requests"][1:]


def _held(kept: Callable[[Json], bool]) -> Removal:
    def remove(question: Json) -> None:
        for claim in question["allocated"]:
            devices = claim["status"]["allocation"]["devices"]
            devices["results"] = [result for result in devices["results"] if kept(result)]

    return remove


def _admin_results(question: Json) -> None:
    """Let them hold their devices."""
    for claim in question["allocated"]:
        for result in claim["status"]["allocation"]["devices"]["results"]:
            result.pop("adminAccess", None)


def _exclusive(result: Json) -> bool:
    return "shareID" not in result and "adminAccess" not in result


def _config_of_classes(question: Json) -> None:
    for one in question["classes"]:
        one["spec"].pop("config", None)


def _config_of_claims(question: Json) -> None:
    for claim in question["claims"]:
        claim["spec"]["devices"].pop("config", None)


def _domains(question: Json) -> None:
    for spec, device in devices_of(question):
        prefix = f"{spec['driver']}/"
        for name in ("attributes", "capacity"):
            device[name] = {key.removeprefix(prefix): value for key, value in device[name].items()}


def _missing(question: Json) -> None:
    """Give each device the attributes that others of its driver have."""
    usual: dict[tuple[str, str], Json] = {}
    for spec, device in devices_of(question):
        for key, value in device["attributes"].items():
            usual.setdefault((spec["driver"], key.removeprefix(f"{spec['driver']}/")), value)
    for spec, device in devices_of(question):
        prefix = f"{spec['driver']}/"
        here = {key.removeprefix(prefix) for key in device["attributes"]}
        for (driver, key), value in usual.items():
            if driver == spec["driver"] and key not in here:
                device["attributes"][key] = value


def _kinds(question: Json) -> None:
    for _, device in devices_of(question):
        for key, value in device["attributes"].items():
            if key.endswith("numa") and "string" in value:
                device["attributes"][key] = {"int": int(value["string"])}


def _missing_classes(wanted: Json) -> None:
    if wanted["deviceClassName"] == "missing":
        wanted["deviceClassName"] = "any"


def _many(question: Json) -> None:
    """Neither more devices than one claim holds, nor requests for them."""
    for one in question["slices"]:
        if len(one["spec"].get("devices", [])) > MOST_RESULTS:
            del one["spec"]["devices"][8:]
    for claim in question["claims"]:
        if sum(wanted.get("count", 0) for wanted in wanted_by(claim)) >= MOST_RESULTS:
            for wanted in wanted_by(claim):
                if wanted.get("count", 0) > MOST_RESULTS / 2:
                    wanted["count"] = 1


def _unknown_capacities(question: Json) -> None:
    known = {key for _, device in devices_of(question) for key in device.get("capacity", {})}
    for claim in question["claims"]:
        for wanted in wanted_by(claim):
            asked = wanted.get("capacity", {}).get("requests", {})
            for key in set(asked) - known:
                del asked[key]


def _gates(question: Json) -> None:
    missing = set(ON[question["k8s"]]) - set(question["features"])
    question["features"] += sorted(missing)


def _lists(question: Json) -> None:
    """Keep the first value of each list."""
    for _, device in devices_of(question):
        for value in device["attributes"].values():
            for kind in ("string", "int", "version"):
                if values := value.pop(f"{kind}s", None):
                    value[kind] = values[0]


def _odd_amounts(question: Json) -> None:
    """Make them ordinary: of capacities, of requests and of counter sets."""
    holders = [
        capacity for _, device in devices_of(question) for capacity in device["capacity"].values()
    ]
    for one in question["slices"]:
        for entry in one["spec"].get("sharedCounters", []):
            holders += entry["counters"].values()
    for claim in question["claims"]:
        for wanted in wanted_by(claim):
            asked = wanted.get("capacity", {}).get("requests", {})
            asked |= {key: "1Gi" for key, value in asked.items() if value in ODD}
    for holder in holders:
        if holder["value"] in ODD:
            holder["value"] = "40Gi"


FEATURES: Final[dict[str, Removal]] = {
    "selector in class": _class_selectors,
    "selector in request": _each_wanted(_without("selectors")),
    "mode All": _each_wanted(_mode_all),
    "count > 1": _each_wanted(_count),
    "firstAvailable": _first_available,
    "matchAttribute": _constraints("matchAttribute"),
    "distinctAttribute": _constraints("distinctAttribute"),
    "multiple allocations": _each_device(_not_shared),
    "capacity request": _each_wanted(_without("capacity")),
    "capacity not published": _unknown_capacities,
    "policy default": _policies("requestPolicy", "default"),
    "policy validValues": _policies("requestPolicy", "validValues"),
    "policy validRange": _policies("requestPolicy", "validRange"),
    "policy range step": _policies("requestPolicy", "validRange", "step"),
    "policy range max": _policies("requestPolicy", "validRange", "max"),
    "shared counters": _each_device(_without("consumesCounters")),
    "counters of shared devices": _each_device(_counters_of_shared),
    "taint NoSchedule": _each_device(_taints("NoSchedule")),
    "taint NoExecute": _each_device(_taints("NoExecute")),
    "taint None": _each_device(_harmless_taints),
    "tolerations": _each_wanted(_without("tolerations")),
    "binding conditions": _each_device(_without("bindingConditions", "bindingFailureConditions")),
    "bindsToNode": _each_device(_without("bindsToNode")),
    "admin access": _each_wanted(_without("adminAccess")),
    "slice nodeName": _reached_by("nodeName", {"allNodes": True}),
    "slice allNodes": _reached_by("allNodes", {"nodeName": "node-1"}),
    "slice nodeSelector": _reached_by("nodeSelector", {"allNodes": True}),
    "slice perDeviceNodeSelection": _reached_by("perDeviceNodeSelection", {"allNodes": True}),
    "slice of another node": _elsewhere,
    "older and newer generations": _generations,
    "incomplete pool": _slice_counts,
    "duplicate device": _duplicates,
    "broken counters": _broken_counters,
    "several drivers": _drivers,
    "pool name of two drivers": _same_pool_names,
    "several claims": _claims,
    "several requests": _requests,
    "device held": _held(lambda result: not _exclusive(result)),
    "share held": _held(lambda result: "shareID" not in result),
    "held with admin access": _admin_results,
    "config in class": _config_of_classes,
    "config in claim": _config_of_claims,
    "domain written out": _domains,
    "attribute missing": _missing,
    "attribute of another type": _kinds,
    "class missing": _each_wanted(_missing_classes),
    "more than 32 devices": _many,
    "gate off": _gates,
    "odd amount": _odd_amounts,
    "attribute of several values": _lists,
}

_WORDS: Final[dict[str, list[str]]] = {
    "selector in request": ['"selectors"'],
    "mode All": ['"All"'],
    "firstAvailable": ['"firstAvailable"'],
    "matchAttribute": ['"matchAttribute"'],
    "distinctAttribute": ['"distinctAttribute"'],
    "multiple allocations": ['"allowMultipleAllocations"'],
    "capacity request": ['"requests": {'],
    "capacity not published": ['"requests": {'],
    "policy default": ['"default"'],
    "policy validValues": ['"validValues"'],
    "policy validRange": ['"validRange"'],
    "policy range step": ['"step"'],
    "policy range max": ['"max"'],
    "shared counters": ['"consumesCounters"'],
    "counters of shared devices": ['"consumesCounters"'],
    "broken counters": ['"sharedCounters"'],
    "taint NoSchedule": ['"taints"'],
    "taint NoExecute": ['"taints"'],
    "taint None": ['"taints"'],
    "tolerations": ['"tolerations"'],
    "binding conditions": ['"bindingConditions"'],
    "bindsToNode": ['"bindsToNode"'],
    "admin access": ['"adminAccess"'],
    "slice allNodes": ['"allNodes"'],
    "slice nodeSelector": ['"nodeSelector"'],
    "slice perDeviceNodeSelection": ['"perDeviceNodeSelection"'],
    "slice of another node": ['"node-2"'],
    "share held": ['"shareID"'],
    "held with admin access": ['"adminAccess"'],
    "config in class": ['"opaque"'],
    "config in claim": ['"opaque"'],
    "domain written out": [".example.com/"],
    "class missing": ['"missing"'],
    "attribute of several values": ['"strings"', '"ints"', '"versions"'],
}
"""A word without which a question cannot have the feature."""
