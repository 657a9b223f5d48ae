"""What removes a feature of slices and their devices from a question."""

from collections.abc import Callable

from allocation.questions import Json, Removal, devices_of, dropping, each_device


def policies(*path: str) -> Removal:
    """Take the last key of ``path`` from every request policy."""

    def change(device: Json) -> None:
        for capacity in device.get("capacity", {}).values():
            holder = capacity
            for key in path[:-1]:
                holder = holder.get(key, {})
            holder.pop(path[-1], None)

    return each_device(change)


def not_shared(device: Json) -> None:
    device.pop("allowMultipleAllocations", None)
    for capacity in device.get("capacity", {}).values():
        capacity.pop("requestPolicy", None)


def counters_of_shared(device: Json) -> None:
    if device.get("allowMultipleAllocations"):
        device.pop("consumesCounters", None)


def taints(effect: str) -> Callable[[Json], None]:
    def change(device: Json) -> None:
        if any(taint["effect"] == effect for taint in device.get("taints", [])):
            device["taints"] = [taint for taint in device["taints"] if taint["effect"] != effect]

    return change


def harmless_taints(device: Json) -> None:
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
                dropping("nodeName", "nodeSelector", "allNodes")(device)


def reached_by(kind: str, instead: Json) -> Removal:
    return lambda question: _reach(question, kind, instead)


def elsewhere(question: Json) -> None:
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


def generations(question: Json) -> None:
    newest = _newest(question)
    question["slices"] = [
        one for one in question["slices"] if one["spec"]["pool"]["generation"] == newest[_pool(one)]
    ]


def slice_counts(question: Json) -> None:
    counts: dict[tuple[tuple[str, str], int], int] = {}
    for one in question["slices"]:
        key = (_pool(one), one["spec"]["pool"]["generation"])
        counts[key] = counts.get(key, 0) + 1
    for one in question["slices"]:
        pool = one["spec"]["pool"]
        if counts[_pool(one), pool["generation"]] != pool["resourceSliceCount"]:
            pool["resourceSliceCount"] = counts[_pool(one), pool["generation"]]


def duplicates(question: Json) -> None:
    seen: set[tuple[object, ...]] = set()
    for spec, device in devices_of(question):
        key = (spec["driver"], spec["pool"]["name"], spec["pool"]["generation"], device["name"])
        if key in seen:
            device["name"] += "-again"
        seen.add(key)


def broken_counters(question: Json) -> None:
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


def drivers(question: Json) -> None:
    if question["slices"]:
        first = question["slices"][0]["spec"]["driver"]
        kept = [one for one in question["slices"] if one["spec"]["driver"] == first]
        question["slices"] = kept


def same_pool_names(question: Json) -> None:
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


def domains(question: Json) -> None:
    for spec, device in devices_of(question):
        prefix = f"{spec['driver']}/"
        for name in ("attributes", "capacity"):
            device[name] = {key.removeprefix(prefix): value for key, value in device[name].items()}


def missing(question: Json) -> None:
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


def kinds(question: Json) -> None:
    for _, device in devices_of(question):
        for key, value in device["attributes"].items():
            if key.endswith("numa") and "string" in value:
                device["attributes"][key] = {"int": int(value["string"])}


def lists(question: Json) -> None:
    """Keep the first value of each list."""
    for _, device in devices_of(question):
        for value in device["attributes"].values():
            for kind in ("string", "int", "version"):
                if values := value.pop(f"{kind}s", None):
                    value[kind] = values[0]
