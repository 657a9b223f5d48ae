"""What is printed as JSON."""

import json

import msgspec

from dray.api import json_codec
from dray_cli.output import print_json


def test_what_is_nested_too_deep_is_printed_as_a_note(capsys):
    deep = b'{"parameters":' + b"[" * 2_000 + b"]" * 2_000 + b"}"
    decoded = json_codec.decode(deep, msgspec.json.Decoder(dict))

    print_json({"claims": [decoded], "name": "größer"})

    printed = capsys.readouterr().out
    assert json.loads(printed)["name"] == "größer"
    assert "nested more than 250 levels deep" in printed
