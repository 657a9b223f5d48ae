"""docs/messages.md: complete, and its tables of readers and writers hold."""

import pytest

from dray.bus.topology import ACCESS
from dray.messages.commands import COMMANDS
from dray.messages.decisions import RECORDS, Decided
from dray.messages.events import EVENTS
from dray.messages.facts import FACTS, NodeObserved
from dray.messages.inputs import INPUTS
from dray.messages.usage import USAGE
from dray_cli.__main__ import VERBS
from dray_webhook.decisions.view import READ_FACTS
from tools.generate.message_readers import READERS, RECORD_WRITERS
from tools.generate.messages_page import fields_of, rendered, values

MESSAGES = (*FACTS, *RECORDS, *COMMANDS, *EVENTS, *INPUTS, *USAGE)


@pytest.fixture(scope="module")
def page() -> str:
    return rendered()


@pytest.mark.parametrize("message", MESSAGES)
def test_every_message_has_its_section_and_known_readers(page: str, message: type) -> None:
    assert f"### {message.__name__}\n" in page
    assert message in READERS


def test_tables_name_only_messages_and_roles_that_exist() -> None:
    assert set(READERS) == set(MESSAGES)
    assert set(RECORD_WRITERS) == set(RECORDS)
    roles = {access.role for access in ACCESS}
    assert set(RECORD_WRITERS.values()) <= roles
    assert {reader.split(" (")[0] for readers in READERS.values() for reader in readers} <= (
        roles | {f"dray {verb}" for verb in VERBS}
    )


def test_the_webhook_reads_what_the_table_says() -> None:
    stated = {message for message, readers in READERS.items() if "webhook" in readers}
    assert stated == set(READ_FACTS)


def test_fields_have_their_type_default_and_docstring() -> None:
    fields = {field.name: field for field in fields_of(NodeObserved)}

    assert list(fields)[:4] == ["revision", "deleted", "node", "counted_pods"]
    assert fields["counted_pods"].type == "tuple[str, ...]"
    assert fields["counted_pods"].default == "`()`"
    assert fields["counted_pods"].meaning == "UIDs of dray's pods whose requests are in the sum."
    assert fields["node"].default == ""
    assert "facts_sequence" in {field.name for field in fields_of(Decided)}


def test_values_inside_messages_are_described_too() -> None:
    names = [kind.__name__ for kind in values()]
    assert names == sorted(names)
    assert {"Claim", "PodDecision", "Reason", "Taint", "RequestPolicy"} <= set(names)
