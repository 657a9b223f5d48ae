"""docs/messages.md: made from the types, complete, and noticed when it is out of date."""

from pathlib import Path

import pytest

from dray.bus.docs import FILE, fields_of, main, rendered, values
from dray.bus.readers import READERS, RECORD_WRITERS
from dray.bus.topology import ACCESS
from dray.messages.commands import COMMANDS
from dray.messages.decisions import RECORDS, Decided
from dray.messages.events import EVENTS
from dray.messages.facts import FACTS, NodeObserved
from dray.messages.inputs import INPUTS
from dray_cli.__main__ import VERBS
from dray_webhook.decisions.view import READ_FACTS

MESSAGES = (*FACTS, *RECORDS, *COMMANDS, *EVENTS, *INPUTS)


@pytest.fixture(scope="module")
def page() -> str:
    return rendered()


def test_the_committed_page_is_what_the_types_say(page: str) -> None:
    assert FILE.read_text("utf-8") == page


def test_a_page_that_differs_fails_the_check_and_is_written_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "messages.md"
    file.write_text("# Messages\n", "utf-8")

    assert main(["--check", "--file", str(file)]) == 1
    assert "run python -m dray.bus.docs" in capsys.readouterr().err
    assert main(["--file", str(file)]) == 0
    assert main(["--check", "--file", str(file)]) == 0


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
    said = {message for message, readers in READERS.items() if "webhook" in readers}
    assert said == set(READ_FACTS)


def test_fields_have_their_type_default_and_docstring() -> None:
    fields = {field.name: field for field in fields_of(NodeObserved)}

    assert list(fields)[:4] == ["revision", "deleted", "node", "counted_pods"]
    assert fields["counted_pods"].type == "tuple[str, ...]"
    assert fields["counted_pods"].default == "`()`"
    assert fields["counted_pods"].meaning == "UIDs of dray's pods that the sum contains."
    assert fields["node"].default == ""
    assert "facts_sequence" in {field.name for field in fields_of(Decided)}


def test_values_inside_messages_are_described_too() -> None:
    names = [kind.__name__ for kind in values()]
    assert names == sorted(names)
    assert {"Claim", "PodDecision", "Reason", "Taint", "RequestPolicy"} <= set(names)
