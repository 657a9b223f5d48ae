"""Whether an allocation obeys the rules, found out without searching for one.

Rules that a minor is known to break are held as that minor holds them: before 1.37
``distinctAttribute`` compares only the last device of each request.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from allocation.quantities import amount_of
from allocation.wanted import alternatives, consumed, is_selected, tolerates
from allocation.world import Key, Usable, has_gate, usable_devices

Json = dict[str, Any]
MOST_RESULTS: Final = 32


def faults(question: Json, answer: Json) -> list[str]:
    """What is wrong with the allocations of ``answer``; empty if they are valid."""
    return list(_Check(question, answer["allocations"] or []).faults())


def _key(result: Json) -> Key:
    return result["driver"], result["pool"], result["device"]


class _Check:
    """One answer, looked at rule by rule."""

    def __init__(self, question: Json, allocations: list[Json]) -> None:
        self._question = question
        self._usable = usable_devices(question)
        self._consumable = has_gate(question, "DRAConsumableCapacity")
        self._pairs = list(zip(question["claims"], allocations, strict=False))

    def faults(self) -> Iterator[str]:
        """Everything that is wrong."""
        for claim, allocation in self._pairs:
            yield from self._requests(claim, allocation)
            yield from self._constraints(claim, allocation)
            yield from self._node_selector(allocation)
            yield from self._config(claim, allocation)
        yield from self._in_use()
        yield from self._capacity()
        yield from self._counters()

    def _shared(self, key: Key) -> bool:
        usable = self._usable.get(key)
        return (
            self._consumable
            and usable is not None
            and bool(usable.device.get("allowMultipleAllocations"))
        )

    def _requests(self, claim: Json, allocation: Json) -> Iterator[str]:
        results = allocation["devices"]["results"]
        if len(results) > MOST_RESULTS:
            yield f"{len(results)} results, more than {MOST_RESULTS}"
        by_name: dict[str, list[Json]] = defaultdict(list)
        for result in results:
            by_name[result["request"]].append(result)
        for request in claim["spec"]["devices"]["requests"]:
            given = [name for name in alternatives(request) if name in by_name]
            if len(given) != 1:
                yield f"request {request['name']} is answered by {given}"
                continue
            wanted = alternatives(request)[given[0]]
            of_it = by_name.pop(given[0])
            yield from self._number(wanted, of_it)
            for result in of_it:
                yield from self._result(wanted, result)
        yield from (f"there is no request {name}" for name in by_name)

    def _number(self, wanted: Json, results: list[Json]) -> Iterator[str]:
        if len({_key(result) for result in results}) < len(results):
            yield "a request has two shares of one device"
        if wanted["allocationMode"] == "ExactCount":
            if len(results) != wanted["count"]:
                yield f"{len(results)} devices for a count of {wanted['count']}"
        elif not (wanted.get("capacity") or {}).get("requests"):
            matching = {
                key
                for key, usable in self._usable.items()
                if is_selected(self._question, wanted, usable)
            }
            left_out = matching - {_key(result) for result in results}
            if not all(self._may_leave_out(key) for key in left_out):
                yield f"all are asked for, {len(matching)} match, {len(results)} are given"

    def _may_leave_out(self, key: Key) -> bool:
        """Before 1.37 mode All passes over shared devices that have too little left."""
        return self._question["k8s"] != "1.37" and self._shared(key)

    def _result(self, wanted: Json, result: Json) -> Iterator[str]:
        key = _key(result)
        usable = self._usable.get(key)
        if usable is None:
            yield f"{key} is not there for the node"
            return
        if not is_selected(self._question, wanted, usable):
            yield f"{key} is not what the selectors want"
        if has_gate(self._question, "DRADeviceTaints") and not tolerates(wanted, usable.device):
            yield f"{key} has a taint that is not tolerated"
        if bool(result.get("adminAccess")) != bool(wanted.get("adminAccess")):
            yield f"{key} has other admin access than asked for"
        if bool(result.get("shareID")) != self._shared(key):
            yield f"{key} has a share id, or none, wrongly"
        yield from self._consumed(wanted, usable, result)
        conditions = ("bindingConditions", "bindingFailureConditions")
        if any((result.get(one) or []) != (usable.device.get(one) or []) for one in conditions):
            yield f"{key} has other binding conditions than the device"

    def _consumed(self, wanted: Json, usable: Usable, result: Json) -> Iterator[str]:
        if not self._consumable:
            return
        taken = consumed(wanted, usable.device, self._question["k8s"])
        if taken is None:
            yield f"{_key(result)} can't give what is asked of it"
        elif self._shared(_key(result)):
            stated = result.get("consumedCapacity") or {}
            if {name: amount_of(value) for name, value in stated.items()} != taken:
                yield f"{_key(result)} consumes other amounts than the policy says"
        elif any(
            amount > amount_of(usable.device["capacity"][name]["value"])
            for name, amount in taken.items()
        ):
            yield f"{_key(result)} is smaller than asked for"

    def _constraints(self, claim: Json, allocation: Json) -> Iterator[str]:
        for constraint in claim["spec"]["devices"].get("constraints") or []:
            affected = [
                result
                for result in allocation["devices"]["results"]
                if not constraint.get("requests")
                or {result["request"], result["request"].split("/")[0]}
                & set(constraint["requests"])
            ]
            name = constraint.get("matchAttribute") or constraint["distinctAttribute"]
            values = [self._attribute(result, name) for result in affected]
            if None in values:
                yield f"a device of {name} has no such attribute"
            elif "matchAttribute" in constraint:
                if any(value != values[0] for value in values):
                    yield f"devices differ in {name}"
            elif self._repeats(affected, values):
                yield f"devices are alike in {name}"

    def _repeats(self, results: list[Json], values: list[Json | None]) -> bool:
        if self._question["k8s"] != "1.37":
            last = {
                result["request"].split("/")[0]: value
                for result, value in zip(results, values, strict=True)
            }
            values = list(last.values())
        return any(value in values[:number] for number, value in enumerate(values))

    def _attribute(self, result: Json, name: str) -> Json | None:
        usable = self._usable.get(_key(result))
        if usable is None:
            return None
        attributes = usable.device.get("attributes") or {}
        short = name.removeprefix(f"{result['driver']}/")
        found: Json | None = attributes.get(name, attributes.get(short))
        return found

    def _node_selector(self, allocation: Json) -> Iterator[str]:
        devices = [self._usable[key] for key in self._given(allocation) if key in self._usable]
        terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
        if any(one.reach.get("nodeName") or one.device.get("bindsToNode") for one in devices):
            name = self._question["node"]["metadata"]["name"]
            here = [{"key": "metadata.name", "operator": "In", "values": [name]}]
            if terms != [{"matchFields": here}]:
                yield "the node selector does not name the node"
            return
        wanted = {_shown(one) for device in devices for one in _required(device.reach)}
        if wanted != {_shown(one) for term in terms for one in _required_by(term)}:
            yield "the node selector does not hold what the devices require"

    def _given(self, allocation: Json) -> list[Key]:
        return [_key(result) for result in allocation["devices"]["results"]]

    def _config(self, claim: Json, allocation: Json) -> Iterator[str]:
        given = {result["request"] for result in allocation["devices"]["results"]}
        names = given | {name.split("/")[0] for name in given}
        classes = {one["metadata"]["name"]: one["spec"] for one in self._question["classes"]}
        wanted = {
            ("FromClass", str(config["opaque"]))
            for request in claim["spec"]["devices"]["requests"]
            for name, one in alternatives(request).items()
            if name in given
            for config in classes[one["deviceClassName"]].get("config") or []
        }
        wanted |= {
            ("FromClaim", str(config["opaque"]))
            for config in claim["spec"]["devices"].get("config") or []
            if not config.get("requests") or names & set(config["requests"])
        }
        stated = allocation["devices"].get("config") or []
        if {(config["source"], str(config["opaque"])) for config in stated} != wanted:
            yield "the configuration is not that of the classes and of the claim"

    def _held(self) -> Iterator[Json]:
        for claim in self._question["allocated"]:
            for result in claim["status"]["allocation"]["devices"]["results"]:
                if not result.get("adminAccess"):
                    yield result

    def _in_use(self) -> Iterator[str]:
        held = {
            _key(result)
            for result in self._held()
            if not (self._consumable and result.get("shareID"))
        }
        taken: Counter[Key] = Counter()
        for _, allocation in self._pairs:
            within: Counter[Key] = Counter()
            for result in allocation["devices"]["results"]:
                key = _key(result)
                if key in held and not result.get("adminAccess"):
                    yield f"{key} is held by another claim"
                if not self._shared(key):
                    within[key] += 1
                    taken[key] += not result.get("adminAccess")
            yield from (f"{key} is given twice to a claim" for key, n in within.items() if n > 1)
        yield from (f"{key} is given to two claims" for key, n in taken.items() if n > 1)

    def _capacity(self) -> Iterator[str]:
        if not self._consumable:
            return
        taken: dict[Key, Counter[str]] = defaultdict(Counter)
        for result in (*self._held(), *self._all_results()):
            if result.get("shareID"):
                for name, value in (result.get("consumedCapacity") or {}).items():
                    taken[_key(result)][name] += amount_of(value)  # type: ignore[assignment]
        given = {_key(result) for result in self._all_results()}
        for key in given & set(taken) & set(self._usable):
            for name, capacity in (self._usable[key].device.get("capacity") or {}).items():
                if taken[key][name] > amount_of(capacity["value"]):
                    yield f"{key} gives more {name} than it has"

    def _all_results(self) -> Iterator[Json]:
        for _, allocation in self._pairs:
            yield from allocation["devices"]["results"]

    def _counters(self) -> Iterator[str]:
        left: dict[tuple[str, str, str, str], Fraction] = {}
        for one in self._question["slices"]:
            spec = one["spec"]
            for entry in spec.get("sharedCounters") or []:
                for name, counter in entry["counters"].items():
                    key = (spec["driver"], spec["pool"]["name"], entry["name"], name)
                    left[key] = amount_of(counter["value"])
        using = {_key(result) for result in (*self._held(), *self._all_results())}
        for driver, pool, device in using & set(self._usable):
            for entry in self._usable[driver, pool, device].device.get("consumesCounters") or []:
                for name, counter in entry["counters"].items():
                    left[driver, pool, entry["counterSet"], name] -= amount_of(counter["value"])
        charged = self._charged()
        for key, amount in left.items():
            if amount < 0 and key[:2] in charged:
                yield f"counter {key} is overdrawn"

    def _charged(self) -> set[tuple[str, str]]:
        """The pools whose counters the allocations draw on; a further share draws on none."""
        held = {_key(result) for result in self._held()}
        return {
            _key(result)[:2]
            for result in self._all_results()
            if (usable := self._usable.get(_key(result))) is not None
            and usable.device.get("consumesCounters")
            and not (self._shared(_key(result)) and _key(result) in held)
        }


def _required(reach: Json) -> Iterator[Json]:
    for term in (reach.get("nodeSelector") or {}).get("nodeSelectorTerms") or []:
        yield from _required_by(term)


def _required_by(term: Json) -> Iterator[Json]:
    yield from term.get("matchFields") or []
    yield from term.get("matchExpressions") or []


def _shown(requirement: Json) -> str:
    values = sorted(requirement.get("values") or [])
    return f"{requirement['key']} {requirement['operator']} {values}"
