"""A long list is decoded object by object; the content of one object does not affect the others."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dray.api.json_codec import cut
from dray.kube.api_transport import ListPage, PageReader, decoded
from dray.kube.convert import claim_from
from dray.kube.ports import ObjectVersion, Transform
from dray.runtime import time_slice

CONFIGS = 32
CLAIMS = 4
WIDE = b'{"kind":"x","a":[' + b"[]," * 3_000 + b"1]}"
DEEP = b'{"kind":"x","a":' + b"[" * 5_000 + b"]" * 5_000 + b"}"


def page(parameters: bytes) -> bytes:
    config = b'{"requests":["gpu"],"opaque":{"driver":"x","parameters":%b}}' % parameters
    item = (
        b'{"metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"1"},'
        b'"spec":{"devices":{"config":[%b]}}}' % b",".join([config] * CONFIGS)
    )
    return listed([item] * CLAIMS)


async def read(data: bytes, known: Callable[[ObjectVersion], Any] | None = None) -> ListPage:
    transform = None if known is None else Transform(known, lambda obj: obj)
    return await PageReader(transform=transform).read(data, "list")


def listed(items: list[bytes]) -> bytes:
    page = b'{"kind":"List","metadata":{"resourceVersion":"9","continue":"x"},"items":[%b]}\n'
    return page % b",".join(items)


def an_object(name: str, fields: bytes = b"{}", spec: bytes = b"{}") -> bytes:
    entry = b'{"manager":"m","fieldsType":"FieldsV1","fieldsV1":%b,"subresource":"s"}' % fields
    return b'{"metadata":{"name":"%b","managedFields":[%b,%b]},"spec":%b}' % (
        name.encode(),
        entry,
        entry,
        spec,
    )


def nested(levels: int) -> bytes:
    return b'{"f:a":' * (levels - 1) + b"{}" + b"}" * (levels - 1)


@pytest.mark.parametrize("parameters", [WIDE, DEEP])
async def test_other_tasks_run_between_the_parameters_of_a_list(parameters: bytes) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    found = await read(page(parameters))
    task.cancel()
    assert len(found.items) == CLAIMS
    assert turns >= CONFIGS * CLAIMS


@pytest.mark.parametrize("parameters", [WIDE, DEEP])
async def test_a_claim_with_large_parameters_is_read_like_others(parameters: bytes) -> None:
    found = await read(page(parameters))
    claim = claim_from(found.items[0])
    assert not claim.spec.unsupported
    assert [config.parameters["kind"] for config in claim.spec.config] == ["x"] * CONFIGS


async def test_a_claim_with_large_parameters_may_be_unreadable_for_another_reason() -> None:
    text = page(WIDE).replace(b'"requests":["gpu"]', b'"requests":[1]')
    [claim, *_] = [claim_from(obj) for obj in (await read(text)).items]
    assert claim.spec.unreadable


@pytest.mark.parametrize("fields", [nested(3), nested(9_900)], ids=["shallow", "deep"])
async def test_other_tasks_run_between_the_objects_of_a_list(
    fields: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_slice, "_MOST_S", 0.0)
    turns, objects = 0, 40

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    found = await read(listed([an_object(f"o{n}", fields) for n in range(objects)]))
    task.cancel()
    assert [obj["metadata"]["name"] for obj in found.items] == [f"o{n}" for n in range(objects)]
    assert turns >= objects


ODD_SPECS = {
    "deep": b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "looks like the next object": b'{"a":[{"kind":"x"},{"metadata":{"name":"x"}},{"kind":"y"}]}',
    "text that looks so": rb'{"a":"}},{\"metadata\":{\"name\":\"x\"}},{","b":",{","c":"\\"}',
    "brackets in text": b'{"]}":"[{","a}":",\\"]}"}',
    "no Unicode": b'{"a":"\xff","b":"\\ud800"}',
}
DEEP_OBJECT = an_object("deep", nested(9_900))


@pytest.mark.parametrize("further", [[], [DEEP_OBJECT]], ids=["alone", "next to a deep one"])
@pytest.mark.parametrize("spec", ODD_SPECS.values(), ids=ODD_SPECS)
async def test_a_list_is_cut_into_its_objects(spec: bytes, further: list[bytes]) -> None:
    texts = [an_object("a"), an_object("b", spec=spec), *further, an_object("c", spec=spec)]
    found = await read(listed(texts))
    assert found.metadata == {"resourceVersion": "9", "continue": "x"}
    single = [await decoded(text, "object") for text in texts]
    assert msgspec.json.encode(found.items) == msgspec.json.encode(single)


@pytest.mark.parametrize("items", [b"null", b"[]", b" [ ] "])
async def test_a_list_may_be_empty(items: bytes) -> None:
    data = b'{"metadata":{"resourceVersion":"9"},"items":%b}' % items
    assert (await read(data)).items == []


@pytest.mark.parametrize("spaces", [b"", b" ", b"\r\n  "])
async def test_a_list_may_be_written_with_spaces(spaces: bytes) -> None:
    items = (b"," + spaces).join([an_object("a"), DEEP_OBJECT, an_object("b")])
    array = b"%b[%b%b%b]" % (spaces, spaces, items, spaces)
    data = b'{"items":%b,"metadata":{"resourceVersion":"9"}}' % array
    found = await read(data)
    assert [obj["metadata"]["name"] for obj in found.items] == ["a", "deep", "b"]


NUMBERS = [b"1e400", b"-1e400", b"9" * 5_000, b"-" + b"9" * 5_000, b"9" * 400 + b".5"]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:6].decode())
@pytest.mark.parametrize("depth", [1, 400])
async def test_a_number_out_of_range_is_kept_as_it_was_sent(number: bytes, depth: int) -> None:
    spec = b'{"a":[1.5,%b],"%b":"1e999","b":%b1%b}' % (number, number, b"[" * depth, b"]" * depth)
    page = await read(listed([an_object("a"), an_object("b", spec=spec)]))
    line = await decoded(b'{"type":"ADDED","object":%b}' % an_object("b", spec=spec), "watch", 1)
    single = await decoded(an_object("b", spec=spec), "object")
    assert page.items[0] == await decoded(an_object("a"), "object")
    for obj in (page.items[1], line["object"], single):
        assert msgspec.json.encode(obj["spec"]) == spec


@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:6].decode())
async def test_a_claim_with_such_a_number_in_its_parameters_is_read(number: bytes) -> None:
    found = await read(page(b'{"kind":%b}' % number))
    for obj in found.items:
        claim = claim_from(obj)
        assert not claim.spec.unreadable
        kept = claim.spec.config[0].parameters["kind"]
        assert msgspec.json.encode(kept) == number


async def test_many_numbers_out_of_range_are_kept_with_what_is_around_them() -> None:
    many = b",".join([b"1e400"] * 300)
    spec = b'{"a":{"b":[%b],"c":["]1e400",{"d":1}]},"e":1e400,"f":[2]}' % many
    found = await decoded(an_object("a", spec=spec), "object")
    assert msgspec.json.encode(found["spec"]) == spec
    assert found["spec"]["a"]["c"] == ["]1e400", {"d": 1}]


@pytest.mark.parametrize("number", [b"1e400", b"9" * 5_000])
async def test_such_a_number_may_stand_next_to_many_containers(number: bytes) -> None:
    wide = b'{"a":[%b1],"b":%b}' % (b"[]," * 3_000, number)
    found = await read(page(wide))
    for obj in found.items:
        (config, *_) = claim_from(obj).spec.config
        assert msgspec.json.encode(config.parameters) == wide


FIELDS: dict[str, bytes] = {
    "deep": nested(9_900),
    "many deep": b"{" + b",".join(b'"f:%d":%b' % (n, nested(300)) for n in range(20)) + b"}",
    "brackets in names": b'{"k:{\\"a\\":1},{]":' * 300 + b"{}" + b"}" * 300,
}


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
@pytest.mark.parametrize("after", [b"", b',"subresource":"status"', b" \n"], ids=repr)
async def test_deep_managed_fields_are_left_out_and_nothing_else(
    fields: bytes, after: bytes
) -> None:
    entry = b'{"manager":"m","fieldsV1":%b%b}' % (fields, after)
    data = b'{"metadata":{"managedFields":[%b,%b]},"spec":{"fieldsV1":%b}}' % (entry, entry, fields)
    found = await decoded(data, "object")
    entries = found["metadata"]["managedFields"]
    assert [set(one) - {"subresource"} for one in entries] == [{"manager"}] * 2
    assert msgspec.json.encode(found["spec"]["fieldsV1"]) == fields


def test_a_list_is_cut_in_steps_that_are_no_longer_than_its_objects() -> None:
    deep = listed([DEEP_OBJECT] * 50)
    assert sum(1 for _ in cut(deep)) >= 49
    shallow = listed([an_object("o" * 60_000)] * 50)
    assert sum(1 for _ in cut(shallow)) >= 20


@pytest.mark.parametrize("fields", [b"{}", nested(9_900)], ids=["shallow", "deep"])
async def test_objects_that_the_caller_has_are_not_decoded(fields: bytes) -> None:
    asked: list[ObjectVersion] = []

    def known(version: ObjectVersion) -> str | None:
        asked.append(version)
        return version.uid if version.name == "b" else None

    texts = [
        an_object(name, fields).replace(b'"name"', b'"uid":"u","resourceVersion":"7","name"', 1)
        for name in "abc"
    ]
    found = await read(listed(texts), known)
    whole = await read(listed(texts))
    assert whole.made == {}
    if fields == b"{}":
        assert asked == [ObjectVersion.of(obj) for obj in whole.items]
        assert found.made == {1: "u"}
        assert found.items == [whole.items[0], None, whole.items[2]]
    else:
        assert (asked, found) == ([], whole), "its version can't be read without recursion"


@pytest.mark.parametrize("version", [b"7", b'"x"', b"null"])
async def test_an_object_whose_version_is_odd_is_decoded(version: bytes) -> None:
    text = b'{"metadata":{"name":"a","uid":"u","resourceVersion":%b}}' % version
    found = await read(listed([text]), lambda _: "known")
    assert found.made == {}
    assert found.items[0]["metadata"]["name"] == "a"
