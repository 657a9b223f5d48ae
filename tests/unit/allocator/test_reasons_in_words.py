"""Reasons say which request they are about, amounts as people read them, and what was meant."""

from typing import Any

import pytest

from dray.api import names
from dray.api.claims import ClaimSpec, DeviceRequest
from dray.api.devices import OpaqueConfig
from dray.api.pods import PodNeeds
from dray.api.quantities import NANO, parse_quantity, readable, readable_quantity
from dray.messages.facts import SliceObserved
from dray.reasons import Reason
from dray_allocator.explain import formatting
from dray_allocator.explain.affected_requests import each_once, named
from dray_allocator.explain.suggest import suggest

OF = f'device.attributes["{names.DRIVER}"]'
BUSY = Reason("in-use", "in use", 2, 2)


def request(name: str, *selectors: str, **capacity: str) -> DeviceRequest:
    """A request for one card."""
    return DeviceRequest(name, names.DEVICE_CLASS, selectors, capacity=capacity)


def reasons_of(world: Any, spec: ClaimSpec, **about: Any) -> list[str]:
    """Why a pod that asks for that waits, in lines."""
    world.submit(world.a_pod("p", **about), spec)
    return [str(reason) for reason in world.waits("p")[-1].reasons]


def small(name: str) -> DeviceRequest:
    """A request that any card can meet."""
    return request(name, virtual_tflops="1", virtual_vram="1Gi")


def test_a_line_of_one_request_of_several_names_it(world):
    world.nodes(world.a_node("n1"), model="A100", vram="40Gi")
    large = request("large", virtual_tflops="1", virtual_vram="50Gi")
    lines = reasons_of(world, ClaimSpec((small("small"), large)))
    assert lines[0].startswith(
        "request large: not enough free virtual_vram (50Gi asked): 1 of 1 device"
    )
    assert not any("request small" in line for line in lines)


def test_a_line_of_all_requests_names_none(world):
    world.nodes(world.a_node("n1"), model="A100")
    both = (request("a", f'{OF}.model == "T4"'), request("b", f'{OF}.model == "T4"'))
    first, *_ = reasons_of(world, ClaimSpec(both))
    assert first.startswith(f'{OF}.model == "T4" is false: 1 of 1 device')


def test_what_two_of_three_requests_have_in_common_names_both():
    other = Reason("capacity", "not enough free virtual_vram (8Gi asked)", 1, 2)
    found = [str(one) for one in each_once([(["a"], [BUSY]), (["b"], [other, BUSY]), (["c"], [])])]
    assert found == [
        "requests a, b: in use: 2 of 2 devices",
        "request b: not enough free virtual_vram (8Gi asked): 1 of 2 devices",
    ]


def test_many_requests_are_cut_short():
    reasons_for = [f"r{number}" for number in range(30)]
    (found,) = each_once([(reasons_for, [BUSY]), (["other"], [])])
    assert found.what == "requests r0, r1, r2, r3 and 26 more: in use"


def test_requests_of_several_claims_are_shown_with_the_number_of_their_claim():
    claims = (object(), object())
    assert named("gpu", 1, claims) == "gpu of claim 2"
    assert named("gpu", 0, claims[:1]) == "gpu"


def test_a_pool_without_nodes_says_so(world):
    assert reasons_of(world, ClaimSpec((small("a"),))) == ["pool pool has no node to allocate on"]


def test_other_requests_are_other_news(world):
    """A line that moves from one request to another is recorded at once."""
    world.nodes(world.a_node("n1"), model="A100")
    first, *_ = reasons_of(world, ClaimSpec((small("a"), request("b", f'{OF}.model == "T4"'))))
    assert first.startswith(f'request b: {OF}.model == "T4" is false: ')


def percent(amount: str) -> ClaimSpec:
    """A request for so much of a card, compute and memory."""
    fields = {"computePercentRequest": amount, "vramPercentRequest": amount}
    parameters = {"apiVersion": names.API_VERSION, "kind": names.LIMITS_KIND, **fields}
    return ClaimSpec((request("gpu"),), config=(OpaqueConfig(names.DRIVER, parameters, ()),))


def test_a_percentage_is_shown_as_one_for_all_models(world):
    cards = [
        world.a_card("small", model="T4", tflops="65", vram="16Gi"),
        world.a_card("large", model="A100", tflops="312", vram="80Gi"),
    ]
    part = world.a_slice("n1", cards, generation=world.next())
    world.see(SliceObserved(revision=world.next(), slice=part))
    world.node(world.a_node("n1"))
    for pod, amount in (("a", "60"), ("b", "70")):
        world.submit(world.a_pod(pod), percent(amount))
    free = {"a": 40, "b": 30}
    held = {
        pod: record.claims[0].allocation.devices[0].id.device
        for pod, record in world.decisions().items()
    }
    most = held[max(held, key=lambda pod: free[pod])]
    lines = reasons_of(world, percent("50"))
    failing = f"2 of 2 devices; nearest: n1/{most} has 40 %"
    assert lines == [
        f"not enough free virtual_tflops (50 % of tflops asked): {failing}",
        f"not enough free virtual_vram (50 % of vram asked): {failing}",
    ]


def test_amounts_are_written_as_people_read_them(world):
    world.nodes(world.a_node("n1", memory_bytes=2**34), model="A100", vram="40Gi")
    world.submit(world.a_pod("holds"), world.ask(tflops="12", vram="8Gi"))
    asks = request("gpu", virtual_tflops="5000000m", virtual_vram="42949672960")
    lines = reasons_of(world, ClaimSpec((asks,)), needs=PodNeeds(memory_bytes=2**35))
    assert [line.partition(": ")[0] for line in lines] == [
        "not enough free virtual_tflops (5000 asked)",
        "not enough free virtual_vram (40Gi asked)",
        "not enough free memory (32Gi asked)",
    ]
    assert lines[2].endswith("nearest: n1 has 16Gi")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5000000m", "5000"),
        ("17179869184", "16Gi"),
        ("1024", "1024"),
        ("1536Ki", "1536Ki"),
        ("2048G", "2048G"),
        ("80G", "80G"),
        ("0", "0"),
        ("1300m", "1.3"),
        ("nonsense", "nonsense"),
    ],
)
def test_an_amount_is_a_plain_number_and_binary_where_that_is_shorter(text, expected):
    assert readable_quantity(text) == expected
    if text != "nonsense":
        amount = parse_quantity(text)
        assert parse_quantity(readable(amount.nano, binary=amount.binary)) == amount


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15247133901", "15.24G"),
        ("14889779Ki", "14.19Gi"),
        ("524160Mi", "511.87Gi"),
        ("60Gi", "60Gi"),
        ("125710m", "125.71"),
        ("12345", "12345"),
        ("1023", "1023"),
        ("999u", "0"),
        ("-1", "0"),
    ],
)
def test_free_amounts_are_shown_in_few_digits_and_rounded_down(text, expected):
    amount = parse_quantity(text)
    assert formatting.left(amount.nano, text) == expected
    assert parse_quantity(expected) <= max(amount, parse_quantity("0"))


def test_what_is_left_in_percent_is_rounded_down():
    assert formatting.share(2 * NANO, 3 * NANO) == "66.66 %"
    assert formatting.share(-NANO, 3 * NANO) == "0 %"
    assert formatting.share(0, 0) == "0 %"


@pytest.mark.parametrize(
    ("wanted", "model", "hint"),
    [
        ("a100", "A100", '(did you mean "A100"?)'),
        ("rtx 4090", "RTX-4090", '(did you mean "RTX-4090"?)'),
        ("Telsa T4", "Tesla T4", '(did you mean "Tesla T4"?)'),
        ("H100", "A100", ""),
        ("A10", "A100", ""),
    ],
)
def test_a_model_that_no_card_has_comes_with_a_suggestion(world, wanted, model, hint):
    world.nodes(world.a_node("n1"), model=model)
    (line,) = reasons_of(world, world.ask(selectors=(f'{OF}.model == "{wanted}"',)))
    end = f" {hint}" if hint else ""
    assert f'"{wanted}" is false: 1 of 1 device{end}; nearest: n1/n1-gpu0 has "{model}"' in line


def test_nothing_is_guessed_where_some_card_has_what_is_wanted(world):
    world.nodes(world.a_node("n1"), model="A100")
    world.nodes(world.a_node("n2"), model="a100")
    clauses = (f'{OF}.model == "a100"', f"{OF}.slot > 1")
    lines = reasons_of(world, world.ask(selectors=clauses))
    assert "did you mean" not in "\n".join(lines)


def test_nothing_is_guessed_of_other_clauses_and_of_many_values(world):
    world.nodes(world.a_node("n1"), model="A100")
    card = world.state.published.of("n1").cards[0]

    def results(text: str) -> Any:
        return world.state.selectors.explain(text, card)

    assert suggest(results(f'{OF}.model == "a100"')) == 'did you mean "A100"?'
    assert suggest(results(f'"a100" == {OF}.model')) == 'did you mean "A100"?'
    assert suggest(results(f'{OF}.model != "A100"')) == ""
    assert suggest(results(f'{OF}.model in ["a100"]')) == ""
    assert suggest([]) == ""
    (one,) = results(f'{OF}.model == "a100"')
    many = [type(one)(one.text, False, "", {"model": f"A100-{number}"}) for number in range(65)]
    assert suggest([one, *many]) == ""
