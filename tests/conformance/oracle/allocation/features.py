"""The features that cases are made of, each recognised by what removes it from a question.

A feature is in a case if removing it changes the question; it decides the case if the answer
changes as well.
"""

import json
import marshal
from collections.abc import Iterator
from typing import Final

from allocation import claim_features as of_claims
from allocation import slice_features as of_slices
from allocation.capacities import ODD
from allocation.effort import MOST_RESULTS
from allocation.questions import (
    Json,
    Removal,
    devices_of,
    dropping,
    each_device,
    each_wanted,
    wanted_by,
)
from allocation.themes import ON


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


def _gates(question: Json) -> None:
    missing = set(ON[question["k8s"]]) - set(question["features"])
    question["features"] += sorted(missing)


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
    "selector in class": of_claims.class_selectors,
    "selector in request": each_wanted(dropping("selectors")),
    "mode All": each_wanted(of_claims.mode_all),
    "count > 1": each_wanted(of_claims.count),
    "firstAvailable": of_claims.first_available,
    "matchAttribute": of_claims.constraints("matchAttribute"),
    "distinctAttribute": of_claims.constraints("distinctAttribute"),
    "multiple allocations": each_device(of_slices.not_shared),
    "capacity request": each_wanted(dropping("capacity")),
    "capacity not published": of_claims.unknown_capacities,
    "policy default": of_slices.policies("requestPolicy", "default"),
    "policy validValues": of_slices.policies("requestPolicy", "validValues"),
    "policy validRange": of_slices.policies("requestPolicy", "validRange"),
    "policy range step": of_slices.policies("requestPolicy", "validRange", "step"),
    "policy range max": of_slices.policies("requestPolicy", "validRange", "max"),
    "shared counters": each_device(dropping("consumesCounters")),
    "counters of shared devices": each_device(of_slices.counters_of_shared),
    "taint NoSchedule": each_device(of_slices.taints("NoSchedule")),
    "taint NoExecute": each_device(of_slices.taints("NoExecute")),
    "taint None": each_device(of_slices.harmless_taints),
    "tolerations": each_wanted(dropping("tolerations")),
    "binding conditions": each_device(dropping("bindingConditions", "bindingFailureConditions")),
    "bindsToNode": each_device(dropping("bindsToNode")),
    "admin access": each_wanted(dropping("adminAccess")),
    "slice nodeName": of_slices.reached_by("nodeName", {"allNodes": True}),
    "slice allNodes": of_slices.reached_by("allNodes", {"nodeName": "node-1"}),
    "slice nodeSelector": of_slices.reached_by("nodeSelector", {"allNodes": True}),
    "slice perDeviceNodeSelection": of_slices.reached_by(
        "perDeviceNodeSelection", {"allNodes": True}
    ),
    "slice of another node": of_slices.elsewhere,
    "older and newer generations": of_slices.generations,
    "incomplete pool": of_slices.slice_counts,
    "duplicate device": of_slices.duplicates,
    "broken counters": of_slices.broken_counters,
    "several drivers": of_slices.drivers,
    "pool name of two drivers": of_slices.same_pool_names,
    "several claims": of_claims.claims,
    "several requests": of_claims.requests,
    "device held": of_claims.held(lambda result: not of_claims.exclusive(result)),
    "share held": of_claims.held(lambda result: "shareID" not in result),
    "held with admin access": of_claims.admin_results,
    "config in class": of_claims.config_of_classes,
    "config in claim": of_claims.config_of_claims,
    "domain written out": of_slices.domains,
    "attribute missing": of_slices.missing,
    "attribute of another type": of_slices.kinds,
    "class missing": each_wanted(of_claims.missing_classes),
    "more than 32 devices": _many,
    "gate off": _gates,
    "odd amount": _odd_amounts,
    "attribute of several values": of_slices.lists,
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
