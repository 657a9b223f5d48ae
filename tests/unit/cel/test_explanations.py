"""*Why*: what each clause gives on a device, and what it read there."""

from dray.api.quantities import parse_quantity
from dray.cel.eval.program import compile
from dray.cel.view import DeviceView

D = "gpu.example.com"
A, C = f'device.attributes["{D}"]', f'device.capacity["{D}"]'
DEVICE = DeviceView(D, {"model": "A100", "count": 7}, {"vram": parse_quantity("40Gi")})


def _explained(text):
    return [(r.text, r.value, dict(r.read)) for r in compile(text).explain(DEVICE)]


def test_a_false_clause_names_the_value_that_it_read():
    assert _explained(f'{A}.model == "H100" && {A}.count > 3') == [
        (f'{A}.model == "H100"', False, {f"{A}.model": "A100"}),
        (f"{A}.count > 3", True, {f"{A}.count": 7}),
    ]


def test_a_failed_clause_names_what_is_missing():
    (found,) = compile(f"{A}.nope > 3").explain(DEVICE)

    assert (found.value, found.error) == (None, "no such key: nope")
    assert dict(found.read) == {f"{A}.nope": None}


def test_the_clauses_within_a_binding_are_explained_one_by_one_with_what_they_read():
    assert _explained(f'cel.bind(d, {A}, d.model == "A100" && d.count < 3)') == [
        ('d.model == "A100"', True, {f"{A}.model": "A100"}),
        ("d.count < 3", False, {f"{A}.count": 7}),
    ]


def test_a_test_of_presence_names_what_it_looks_for():
    assert _explained(f'"zone" in {A}') == [(f'"zone" in {A}', False, {f"{A}.zone": None})]
    assert _explained(f"{A}.?zone.orValue(1) == 2")[0][2] == {f"{A}.zone": None}


def test_a_variable_of_a_loop_hides_what_it_would_stand_for_outside():
    ((_, value, read),) = _explained(f"cel.bind(d, {A}, [{{'count': 1}}].all(d, d.count == 1))")

    assert value is True
    assert f"{A}.count" not in read


def test_the_domain_may_be_the_device_s_own():
    text = "device.capacity[device.driver].vram.isLessThan(quantity('1Gi'))"
    ((_, value, read),) = _explained(text)

    assert value is False
    assert read["device.capacity[device.driver].vram"] == parse_quantity("40Gi")


def test_clauses_and_the_whole_agree():
    text = f'{A}.model == "A100" && ({A}.nope == 1 || {C}.vram.compareTo(quantity("40Gi")) == 0)'
    program = compile(text)

    assert all(clause.value for clause in program.explain(DEVICE))
    assert program.matches(DEVICE)
