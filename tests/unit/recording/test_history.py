"""A recording that begins late starts journals where all that was known was written."""

import msgspec

from dray.messages.base import encode
from dray.messages.inputs import AgentNoted, ControllerNoted
from dray.recording.history import InputHistory
from dray.recording.lines import InputLine


def line(number: int, what: str, instance: str = "c-0", kind=ControllerNoted) -> InputLine:
    noted = kind(instance=instance, life="1", number=number, what=what)
    message = encode(noted, source="test", now_unix_s=0.0)
    return InputLine(
        sequence=number,
        subject=message.subject,
        time_unix_s=0.0,
        payload=msgspec.Raw(message.payload),
    )


def taken(*lines: InputLine) -> list[int]:
    history = InputHistory()
    for one in lines:
        history.add(one)
    return [one.sequence for one in history.take()]


def test_a_life_that_is_there_from_its_beginning_is_taken_whole():
    assert taken(line(1, "consumed"), line(2, "decided")) == [1, 2]


def test_what_came_before_all_that_is_known_is_left_out():
    assert taken(line(1, "consumed"), line(2, "known"), line(3, "decided")) == [2, 3]


def test_the_pieces_of_what_is_known_stay():
    lines = [line(1, "part"), line(2, "decided"), line(3, "part"), line(4, "part")]
    assert taken(*lines, line(5, "known"), line(6, "consumed")) == [3, 4, 5, 6]


def test_each_instance_has_its_own():
    assert taken(line(1, "consumed"), line(2, "consumed", "c-1"), line(3, "known", "c-1")) == [1, 3]


def test_lines_that_stand_by_themselves_are_not_needed():
    assert taken(line(1, "decided", kind=AgentNoted)) == []
