"""Golden messages: what any version of dray has written, every later one reads and writes.

The files are never edited; a new field or type gets new files.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dray.messages.base import Message, decode, encode
from dray.messages.commands import COMMANDS
from dray.messages.decisions import RECORDS, decode_record, encode_record, log_subject
from dray.messages.events import EVENTS
from dray.messages.facts import FACTS
from dray.messages.inputs import INPUTS
from dray.messages.usage import USAGE

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*/*.json"))
TYPES: dict[str, type[Message]] = {
    f"{message.KIND}.{message.NAME}.v{message.VERSION}": message
    for message in (*FACTS, *EVENTS, *COMMANDS, *INPUTS, *USAGE)
}
RECORD_TYPES = {
    f"decision.{record.__struct_config__.tag}.v{record.VERSION}": record for record in RECORDS
}
TRACEPARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def golden(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def payload(content: dict[str, Any]) -> bytes:
    return json.dumps(content["payload"]).encode()


def holds(written: Any, golden: Any) -> bool:
    """Whether all that the golden value says is written; later versions may say more."""
    if isinstance(golden, dict):
        return isinstance(written, dict) and all(
            key in written and holds(written[key], value) for key, value in golden.items()
        )
    if isinstance(golden, list):
        return len(written) == len(golden) and all(map(holds, written, golden))
    return bool(written == golden)


MESSAGES = [path for path in FILES if path.parent.name in TYPES]
RECORDED = [path for path in FILES if path.parent.name in RECORD_TYPES]


def test_every_wire_type_has_a_golden_message() -> None:
    assert {path.parent.name for path in FILES} == {*TYPES, *RECORD_TYPES}


@pytest.mark.parametrize("path", MESSAGES, ids=name)
def test_a_golden_message_is_read_and_written_equal(path: Path) -> None:
    content = golden(path)
    message = decode(payload(content), TYPES[path.parent.name])
    outgoing = encode(
        message,
        source="golden",
        correlation_id="req-1",
        causation_id="cause-1",
        traceparent=TRACEPARENT,
        now_unix_s=1767323048.125,
    )
    assert holds(json.loads(outgoing.payload), content["payload"])
    assert outgoing.subject == content["subject"]
    assert outgoing.headers == content["headers"]


@pytest.mark.parametrize("path", RECORDED, ids=name)
def test_a_golden_record_is_the_same_after_decoding_and_encoding(path: Path) -> None:
    content = golden(path)
    record = decode_record(payload(content))
    assert type(record) is RECORD_TYPES[path.parent.name]
    assert holds(json.loads(encode_record(record)), content["payload"])
    assert log_subject(record.domain, record.epoch) == content["subject"]


@pytest.mark.parametrize("path", MESSAGES + RECORDED, ids=name)
def test_a_field_of_a_later_version_is_passed_over(path: Path) -> None:
    content = golden(path)
    content["payload"]["added_later"] = {"x": [1]}
    if path in RECORDED:
        assert decode_record(payload(content)) == decode_record(payload(golden(path)))
    else:
        wire_type = TYPES[path.parent.name]
        assert decode(payload(content), wire_type) == decode(payload(golden(path)), wire_type)


def test_an_unknown_record_is_not_guessed() -> None:
    with pytest.raises(msgspec.ValidationError, match="record"):
        decode_record(b'{"record":"from-the-future"}')
