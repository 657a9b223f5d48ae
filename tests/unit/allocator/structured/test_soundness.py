"""Whatever is asked: what is allocated is really there, and what fits is found."""

from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.claims import Claim, ClaimSpec, Constraint, DeviceRequest
from dray.api.devices import (
    Capacity,
    CounterSet,
    Device,
    DeviceClass,
    DeviceCounterConsumption,
    DeviceId,
    RequestPolicy,
    ResourceSlice,
)
from dray.api.pods import Node
from dray.api.quantities import parse_quantity
from dray_allocator.devices.allocate import Problem, allocate
from dray_allocator.devices.devices_in_use import DevicesInUse
from dray_allocator.devices.versions import scheduler_version

HERE = Node("here", "uid-here")
ANY = [DeviceClass("any")]
POLICY = RequestPolicy(default="2", minimum="1", step="1")
VALUES = st.sampled_from([None, 1, 2])


@st.composite
def devices(draw, name, kinds=("plain", "shared", "counting")):
    """A device that is used alone, shared by capacity, or by a counter of its pool."""
    kind = draw(st.sampled_from(kinds))
    value = draw(VALUES)
    uses = (DeviceCounterConsumption("set", {"c": str(draw(st.integers(1, 3)))}),)
    return Device(
        name,
        attributes={} if value is None else {"m": value},
        capacity={"v": Capacity("4", POLICY)} if kind == "shared" else {},
        allow_multiple_allocations=kind == "shared",
        consumes=uses if kind == "counting" else (),
    )


@st.composite
def problems(draw, **kinds):
    """A pool of up to five devices on one node, and up to two claims for some of them."""
    found = tuple(draw(devices(f"d{n}", **kinds)) for n in range(draw(st.integers(1, 5))))
    slices = [
        ResourceSlice("s0", "u0", "d.x", "p", 0, 2, "here", found),
        ResourceSlice(
            "s1", "u1", "d.x", "p", 0, 2, "here", counter_sets=(CounterSet("set", {"c": "4"}),)
        ),
    ]
    claims = [draw(claims_of(f"c{n}")) for n in range(draw(st.integers(1, 2)))]
    held = [device.name for device in found if draw(st.integers(0, 4)) == 0]
    usage = DevicesInUse(frozenset(DeviceId("d.x", "p", name) for name in held))
    return Problem(HERE, slices, ANY, usage, claims)


@st.composite
def claims_of(draw, name):
    """Up to two requests for one or two devices, perhaps with a constraint."""
    requests = tuple(
        DeviceRequest(f"r{n}", "any", count=draw(st.integers(1, 2)))
        for n in range(draw(st.integers(1, 2)))
    )
    constraint = draw(
        st.sampled_from(
            [
                (),
                (Constraint((), "d.x/m", None),),
                (Constraint((), None, "d.x/m"),),
            ]
        )
    )
    return Claim(name, "ns", name, 1, "", ClaimSpec(requests, constraint))


def published(problem):
    """Devices by name."""
    return {device.name: device for part in problem.slices for device in part.devices}


@settings(max_examples=100, deadline=None)
@given(problems())
def test_what_is_allocated_is_there(problem):
    found = allocate(problem, scheduler_version("1.37"))
    if found is None:
        return
    known = published(problem)
    taken = [result for one in found for result in one.devices]
    mine = [one.id.device for one in taken if not known[one.id.device].allow_multiple_allocations]
    held = sorted(one.device for one in problem.usage.whole)
    assert len(mine + held) == len({*mine, *held})
    counted = sum(int(use.counters["c"]) for name in mine + held for use in known[name].consumes)
    assert counted <= 4 or not any(known[name].consumes for name in mine)
    for name, device in known.items():
        shares = [one.consumed for one in taken if one.id.device == name]
        if device.allow_multiple_allocations:
            assert sum(parse_quantity(share["v"]).value for share in shares) <= 4
    assert len({one.share_id for one in taken if one.share_id}) == len(taken) - len(mine)


@settings(max_examples=100, deadline=None)
@given(problems())
def test_every_request_gets_its_number_and_constraints_hold(problem):
    found = allocate(problem, scheduler_version("1.37"))
    known = published(problem)
    for claim, one in zip(problem.claims, found or [], strict=bool(found)):
        for request in claim.spec.requests:
            got = [result for result in one.devices if result.request == request.name]
            assert len(got) == request.count
            assert len({result.id for result in got}) == len(got)
        for constraint in claim.spec.constraints:
            values = [known[result.id.device].attributes.get("m") for result in one.devices]
            assert None not in values
            expected = 1 if constraint.match_attribute else len(values)
            assert len(set(values)) == expected


@settings(max_examples=120, deadline=None)
@given(problems(kinds=("plain", "counting")))
def test_what_fits_is_found(problem):
    """Compared with trying every choice there is."""
    expected = any(is_valid(problem, choice) for choice in choices(problem))
    assert (allocate(problem, scheduler_version("1.37")) is not None) == expected


def choices(problem):
    """Every way to give each request its number of devices."""
    names = list(published(problem))
    per_request = [
        combinations(names, request.count)
        for claim in problem.claims
        for request in claim.spec.requests
    ]
    return product(*per_request)


def is_valid(problem, choice):
    """Whether no device is taken twice, the counter suffices, and constraints hold."""
    known, rest = published(problem), list(choice)
    names = [name for chosen in choice for name in chosen]
    names += sorted(one.device for one in problem.usage.whole)
    if len(names) != len(set(names)):
        return False
    needed = sum(int(use.counters["c"]) for name in names for use in known[name].consumes)
    if needed > 4 and any(known[name].consumes for chosen in choice for name in chosen):
        return False
    for claim in problem.claims:
        mine = [name for _ in claim.spec.requests for name in rest.pop(0)]
        values = [known[name].attributes.get("m") for name in mine]
        for constraint in claim.spec.constraints:
            wanted = 1 if constraint.match_attribute else len(values)
            if None in values or len(set(values)) != wanted:
                return False
    return True


@settings(max_examples=40, deadline=None)
@given(problems(), st.sampled_from(["1.34", "1.35", "1.36", "1.37"]))
def test_the_same_question_has_the_same_answer(problem, version):
    scheduler = scheduler_version(version, scheduler_version("1.36").features)
    assert allocate(problem, scheduler) == allocate(problem, scheduler)
