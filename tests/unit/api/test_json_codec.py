"""JSON of any depth is read without recursion, and written again as it was."""

import copy
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.json_codec import MAX_NESTING, MOST_CONTAINERS, checked, decode, opaque_parts

OBJECT = msgspec.json.Decoder(dict[str, Any])
DEPTHS = (1_000, 2_000, 3_000, 10_000, 100_000)
SHAPES = {
    "arrays": (b"[", b"]"),
    "objects": (b'{"a":', b"}"),
    "mixed": (b'[{"a":[', b"]}]"),
    "objects with brackets in strings": (b'{"]}":"[{\\"","a":', b"}"),
    "arrays with what follows": (b"[", b',"x",{}]'),
}


def nested(depth: int, shape: str = "arrays") -> bytes:
    opening, closing = SHAPES[shape]
    return b'{"kept":1,"deep":' + opening * depth + b"1" + closing * depth + b',"last":[[2]]}'


def depth_of(value: Any) -> int:
    """Of plain containers; without recursion."""
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        one, depth = waiting.pop()
        if isinstance(one, dict | list):
            deepest = max(deepest, depth)
            entries = one.values() if isinstance(one, dict) else one
            waiting += [(entry, depth + 1) for entry in entries]
    return deepest


def in_thread(work: Callable[[], Any], stack_bytes: int) -> Any:
    found: list[Any] = []
    before = threading.stack_size(stack_bytes)
    try:
        thread = threading.Thread(target=lambda: found.append(work()))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    return found[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("depth", DEPTHS)
def test_what_is_nested_to_any_depth_is_read_and_written_again_as_it_was(
    depth: int, shape: str
) -> None:
    data = nested(depth, shape)
    found = decode(data, OBJECT)
    assert (found["kept"], found["last"]) == (1, [[2]])
    assert depth_of(found) == MAX_NESTING
    assert msgspec.json.encode(found) == data


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_small_stack_suffices(depth: int) -> None:
    data = nested(depth, "mixed")
    found = in_thread(lambda: msgspec.json.encode(decode(data, OBJECT)), 128 * 1024)
    assert found == data


def test_what_is_read_can_be_copied_and_compared() -> None:
    found = decode(nested(10_000, "objects"), OBJECT)
    assert copy.deepcopy(found) == found
    assert found != decode(nested(9_999, "objects"), OBJECT)


@pytest.mark.parametrize("depth", [MAX_NESTING - 1, MAX_NESTING, MAX_NESTING + 1])
def test_only_what_exceeds_the_limit_is_kept_as_text(depth: int) -> None:
    """``depth`` counts the object itself."""
    data = b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"
    inner: Any = decode(data, OBJECT)["a"]
    for _ in range(depth - 2):
        if isinstance(inner, msgspec.Raw):
            break
        inner = inner[0]
    assert isinstance(inner, msgspec.Raw) == (depth > MAX_NESTING)


def test_what_encloses_the_object_is_not_counted() -> None:
    data = b'{"items":[' + nested(2_000) + b"]}"
    [item] = decode(data, OBJECT, nesting=MAX_NESTING + 2)["items"]
    assert depth_of(item) == MAX_NESTING


def test_a_string_that_names_a_part_is_a_string() -> None:
    """Also where the data tells by which name its parts are put back."""
    data = b'{"a":"0.0","b":["' + b"0" * 64 + b'.0"],"c":' + b"[" * 300 + b"]" * 300 + b"}"
    assert msgspec.json.encode(decode(data, OBJECT)) == data


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (b'"x\xffy"', "x�y"),
        (b'"\\ud800x"', "�x"),
        (b'"x\\udc00"', "x�"),
        (b'"\\\\ud800"', "\\ud800"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\\\\\ud800"', "\\�"),
    ],
)
@pytest.mark.parametrize("depth", [1, 2_000])
def test_what_is_not_unicode_is_read_as_go_reads_it(text: bytes, read: str, depth: int) -> None:
    data = b'{"a":' + text + b',"b":' + b"[" * depth + b"]" * depth + b"}"
    assert decode(data, OBJECT)["a"] == read


def test_a_key_that_is_not_unicode_is_read_as_go_reads_it() -> None:
    assert decode(b'{"a\xff":1}', OBJECT) == {"a�": 1}


class Typed(msgspec.Struct):
    name: str
    parameters: dict[str, object]


def test_types_hold_for_deep_data() -> None:
    decoder = msgspec.json.Decoder(Typed)
    deep = b"[" * 5_000 + b"]" * 5_000
    found = decode(b'{"name":"x","parameters":{"a":' + deep + b"}}", decoder)
    assert isinstance(found, Typed)
    assert msgspec.json.encode(found) == b'{"name":"x","parameters":{"a":' + deep + b"}}"
    with pytest.raises(msgspec.ValidationError, match=r"Expected `str`, got `int` - at `\$.name`"):
        decode(b'{"name":1,"parameters":{"a":' + deep + b"}}", decoder)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nothing",
        b'{"a":1',
        b'{"a":"',
        b'{"a":' + b"[" * 5_000,
        b'{"a":' + b"[" * 5_000 + b"]" * 4_000 + b"}",
        b'{"a":' + b"]" * 5_000 + b"[" * 5_000 + b"}",
        b'{"a":"' + b"[" * 5_000 + b"]" * 5_000,
        b"[" * 300 + b"{}" + b"]" * 300,
    ],
)
def test_what_is_not_an_object_is_refused_by_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(data, OBJECT)


_TEXT = st.text(st.sampled_from('ab[]{}"\\,:é\U0001f600\n'))
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=40,
)


@given(st.dictionaries(_TEXT, _JSON), st.integers(1, 6))
def test_every_object_is_written_again_as_it_was_read(value: Any, nesting: int) -> None:
    data = msgspec.json.encode(value)
    found = decode(data, OBJECT, nesting=nesting)
    assert msgspec.json.encode(found) == data
    assert depth_of(found) == min(depth_of(value), nesting)


HEAVY = {
    "deep lists": b'{"kind":"x","a":[' + b",".join([b"[" * 260 + b"]" * 260] * 19) + b"]}",
    "one deep list": b'{"kind":"x","a":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "many lists": b'{"kind":"x","a":[' + b"[]," * 3_300 + b"1]}",
    "many keys": b'{"kind":"x",' + b",".join(b'"k%d":{}' % n for n in range(1_000)) + b"}",
    "parameters within": b'{"kind":"x","a":[' + b'{"parameters":{"b":[[],[]]}},' * 300 + b"1]}",
    "brackets in strings": b'{"kind":"x","a":[' + b'["]}\\"[{"],' * 800 + b'"]"]}',
    "long strings": b'{"kind":"x","s":"' + b"[" * 5_000 + b'","a":[' + b"[]," * 200 + b"1]}",
}


def configs(parameters: bytes, count: int) -> bytes:
    config = b'{"opaque":{"driver":"d","parameters":%b},"requests":["gpu"]}' % parameters
    return b'{"config":[%b],"last":[[2]]}' % b",".join([config] * count)


def read(data: bytes) -> dict[str, Any]:
    return decode(data, OBJECT, opaque=opaque_parts(data))


def containers_of(value: Any) -> int:
    found, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict | list):
            found += 1
            waiting += one.values() if isinstance(one, dict) else one
    return found


@pytest.mark.parametrize("parameters", HEAVY.values(), ids=HEAVY)
def test_what_is_made_of_parameters_is_bounded_by_their_number(parameters: bytes) -> None:
    data = configs(parameters, 32)
    found = read(data)
    assert containers_of(found) == containers_of(read(configs(b"{}", 32)))
    assert found["config"][31]["opaque"]["parameters"]["kind"] == "x"
    assert msgspec.json.encode(found) == data


@pytest.mark.parametrize("containers", [MOST_CONTAINERS, MOST_CONTAINERS + 1])
@pytest.mark.parametrize("opening", [b"[", b"[[[[[[[[[["])
def test_usual_parameters_are_decoded_as_a_whole(containers: int, opening: bytes) -> None:
    """The parameters themselves are one of the containers."""
    deep = opening + b"]" * len(opening)
    lists = [b"[]"] * (containers - 2 - len(opening)) + [deep]
    inner = read(configs(b'{"a":[' + b",".join(lists) + b"]}", 1))
    kept = inner["config"][0]["opaque"]["parameters"]["a"]
    assert isinstance(kept, msgspec.Raw) == (containers > MOST_CONTAINERS)


def test_parameters_in_what_is_nested_too_deep_stay_as_they_are_written() -> None:
    data = b'{"a":' + b"[" * 300 + configs(HEAVY["many lists"], 2) + b"]" * 300 + b"}"
    assert msgspec.json.encode(read(data)) == data


def test_parameters_are_read_as_go_reads_them() -> None:
    data = configs(b'{"s":"\xff","a":["\\ud800",' + b"[],\n" * 200 + b"1]}", 1)
    parameters = read(data)["config"][0]["opaque"]["parameters"]
    assert parameters["s"] == "\ufffd"
    assert bytes(parameters["a"]) == b'["\\ufffd",' + b"[], " * 200 + b"1]"


@pytest.mark.parametrize("end", [b"", b'"', b'{"a":"', b"[" * 300, b"]" * 300])
def test_parameters_that_do_not_end_are_refused(end: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read(b'{"parameters":{"a":[' + b"[]," * 300 + end)


@given(st.dictionaries(_TEXT, _JSON), st.integers(0, 3))
def test_any_parameters_are_written_again_as_they_were_read(value: Any, more: int) -> None:
    heavy = {**value, "x": [[]] * MOST_CONTAINERS * more}
    data = msgspec.json.encode([{"parameters": heavy}, {"parameters": value}, heavy])
    found: Any = decode(data, msgspec.json.Decoder(list[Any]), opaque=opaque_parts(data))
    assert msgspec.json.encode(found) == data


def test_what_is_kept_as_text_passes_a_check_where_any_object_does() -> None:
    decoder = msgspec.json.Decoder(Typed)
    heavy = read(b'{"parameters":' + HEAVY["many lists"] + b"}")["parameters"]
    assert checked(Typed("x", heavy), decoder) == Typed("x", heavy)
    names: list[Any] = [heavy["a"], 1]
    for name in names:
        with pytest.raises(msgspec.ValidationError, match="name"):
            checked(Typed(name, heavy), decoder)
