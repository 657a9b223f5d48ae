"""Recorded decisions come out byte by byte; what was changed since is shown where it shows."""

import gzip
import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from dray.messages.decisions import (
    Checkpoint,
    Decided,
    DecidedGroup,
    Released,
    Waiting,
    decode_record,
)
from dray.recording.file import BadRecordingError, read_recording, write_recording
from dray.recording.lines import FactLine, Header, RecordLine
from dray_allocator.nodes import tie_break
from dray_cli.__main__ import cli
from dray_cli.replay.difference import Divergence
from dray_cli.replay.run import replay
from tools.recordings.allocators import simulate, simulate_groups


def test_the_recording_holds_what_goes_wrong_in_clusters(recording, simulation):
    lines = read_recording(recording)
    kinds = Counter(type(line).__name__ for line in lines)
    records = [decode_record(bytes(line.payload)) for line in lines if is_record(line)]

    assert kinds["FactLine"] + kinds["RecordLine"] >= 1000
    assert {record.writer for record in records} >= {"allocator-0", "allocator-1"}
    assert {record.epoch for record in records} == {1, 2}
    for what in ("conflicts", "voided", "deleted", "restarts", "cleared", "moved", "epochs"):
        assert simulation.counts[what] > 0, what


def test_the_recording_is_what_the_script_makes(recording, simulation, tmp_path):
    """Remake it in the commit that changes what is decided, and say why in the changelog."""
    made = tmp_path / recording.name
    write_recording(made, simulation.lines)

    assert gzip.decompress(made.read_bytes()) == gzip.decompress(recording.read_bytes())


def test_every_recorded_decision_comes_out_the_same(recording):
    outcome = replay(read_recording(recording))

    assert outcome.divergence is None
    assert outcome.services["allocator"].uncovered == 0
    assert outcome.compared["decided"] >= 50
    assert outcome.compared["waiting"] >= 100
    assert outcome.compared["released"] >= 50
    assert outcome.compared["node-left"] >= 1
    assert outcome.compared["checkpoint"] >= 1
    assert outcome.services["allocator"].entangled < outcome.compared.total() / 10


@pytest.mark.parametrize(("seed", "before"), [(2, 0), (3, 300), (4, 900)])
def test_a_recording_may_begin_at_any_time(seed, before):
    """What was compacted away before it changes nothing."""
    outcome = replay(simulate(seed, before=before, moves=700).lines)

    assert outcome.divergence is None
    assert outcome.compared["decided"] > 0
    assert outcome.compared["waiting"] > 0


def test_recorded_decisions_on_groups_come_out_the_same(groups):
    """Gangs that start, lose pods and get successors, with what is held for them. The recording is
    what ``python -m tools.recordings`` makes."""
    lines = read_recording(groups)
    outcome = replay(lines)

    assert outcome.divergence is None
    assert outcome.compared["decided-group"] >= 3
    records = [decode_record(bytes(line.payload)) for line in lines if is_record(line)]
    holds = [one for record in records if isinstance(record, Released) for one in record.holds]
    assert any(one.claims for one in holds)
    assert any(not one.claims for one in holds)
    assert lines == simulate_groups().lines


def test_an_edited_minimum_is_found_at_the_first_decision_on_its_group(groups):
    lines = read_recording(groups)
    edited = [
        edit(line, "", '"minimum":', '"minimum":9', kind="dray.state.group") for line in lines
    ]

    divergence = replay(edited).divergence

    assert isinstance(divergence.recorded, DecidedGroup | Waiting)
    assert any(fact.subject.startswith("dray.state.group.") for fact in divergence.about())


def test_decisions_on_groups_of_another_run_come_out_the_same():
    outcome = replay(simulate(13, before=200, moves=900, groups=True).lines)

    assert outcome.divergence is None
    assert outcome.compared["decided-group"] > 0


@pytest.mark.parametrize("first", [1, 20], ids=["at the start", "under the recorder"])
def test_logs_that_were_trimmed_are_replayed_from_their_checkpoint_on(recording, first):
    """``first``: records from there on were trimmed, up to a checkpoint."""
    lines = read_recording(recording)
    checkpoints = {}
    for line in lines:
        if is_record(line) and isinstance(decode_record(bytes(line.payload)), Checkpoint):
            checkpoints.setdefault((line.domain, line.epoch), []).append(line.sequence)
    start = {log: sequences[len(sequences) // 2] for log, sequences in checkpoints.items()}

    def is_kept(line):
        return not is_record(line) or not first <= line.sequence < start.get(
            (line.domain, line.epoch), 0
        )

    kept = [line for line in lines if is_kept(line)]
    outcome = replay(kept)

    assert len(kept) < len(lines) - 100
    assert outcome.divergence is None
    assert outcome.compared["decided"] >= 10
    assert outcome.compared["checkpoint"] >= 1


def test_an_edited_event_is_found_at_the_first_record_it_changes(recording):
    lines = read_recording(recording)
    at, decided = first_decided(lines)
    uid = decided.pods[0].claims[0].uid
    edited = [edit(line, uid, '"virtual_vram":"', '"virtual_vram":"9') for line in lines]

    divergence = replay(edited).divergence

    assert isinstance(divergence, Divergence)
    assert (divergence.line.domain, divergence.line.sequence) == (at.domain, at.sequence)
    assert divergence.cause().sequence <= decided.facts_sequence
    assert any(uid in fact.subject for fact in divergence.about())
    assert any(line.startswith("-") and "virtual_vram" in line for line in shown(divergence))


def test_a_changed_policy_is_found_at_the_first_decision_it_changes(recording):
    lines = read_recording(recording)
    edited = [
        edit(line, "", '"version":', '"version":7', kind="dray.state.policy") for line in lines
    ]

    divergence = replay(edited).divergence

    assert isinstance(divergence.recorded, Decided)
    assert divergence.made.policy_version != divergence.recorded.policy_version
    assert any(fact.subject.startswith("dray.state.policy.") for fact in divergence.about())
    assert any(fact.subject.startswith("dray.state.pool.") for fact in divergence.about())
    assert '-  "policy_version": ' in divergence.difference()


def test_changed_code_is_found(recording, monkeypatch):
    """Ties fall otherwise."""
    others = 2**tie_break.TIE_BITS - 1
    monkeypatch.setattr("dray_allocator.nodes.table.tie", lambda one: others - tie_break.tie(one))

    divergence = replay(read_recording(recording)).divergence

    assert isinstance(divergence.recorded, Decided | Waiting)
    reported = [line for line in shown(divergence) if line.startswith("+")]
    assert any('"device"' in line or '"where"' in line for line in reported)


def test_a_changed_setting_is_found(recording):
    """Nodes that a claim was withdrawn from are tried again at once."""
    lines = read_recording(recording)
    changed = [edit_record(line, '"exclusion_s":20.0', '"exclusion_s":0.0') for line in lines]

    assert replay(changed).divergence is not None


def test_records_say_under_which_settings_they_were_made(recording):
    """Replay needs nobody to tell it; a setting that this version lacks is an error."""
    lines = read_recording(recording)
    edited = [edit_record(line, '"exclusion_s":20.0', '"exclusion_s":"soon"') for line in lines]

    with pytest.raises(BadRecordingError, match="exclusion_s"):
        replay(edited)


def test_the_verb_says_of_every_service_what_was_equal(recording):
    result = CliRunner().invoke(cli, ["replay", str(recording)])

    assert result.exit_code == 0
    assert result.output.count("\n") == 4
    assert "\nallocator:        equal: " in result.output
    assert "webhook:          nothing to compare" in result.output


def test_the_verb_shows_the_event_and_the_difference(recording, tmp_path):
    file = edited_policy(recording, tmp_path)

    result = CliRunner().invoke(cli, ["replay", str(file)])

    assert result.exit_code == 1
    assert "First difference: record " in result.output
    assert "The last event before it:\n  fact " in result.output
    assert "--- recorded" in result.output
    assert "+++ replayed" in result.output


def test_programs_get_both_records(recording, tmp_path):
    file = edited_policy(recording, tmp_path)

    result = CliRunner().invoke(cli, ["replay", str(file), "--output", "json"])
    data = json.loads(result.output)

    assert result.exit_code == 1
    assert not data["equal"]
    assert data["divergence"]["event"]["sequence"] <= data["divergence"]["factsSequence"]
    assert data["divergence"]["recorded"] != data["divergence"]["replayed"]


def test_a_recording_without_decisions_is_not_a_success(recording, tmp_path):
    file = tmp_path / "idle.jsonl"
    write_recording(file, [line for line in read_recording(recording) if not is_record(line)])

    result = CliRunner().invoke(cli, ["replay", str(file)])

    assert result.exit_code == 1
    assert "no decision that could be replayed" in str(result.exception)


# The recordings are edited as text: an event is what its bytes say.


def edited_policy(recording: Path, folder: Path) -> Path:
    file = folder / "edited.jsonl"
    lines = read_recording(recording)
    change = ('"version":', '"version":7')
    write_recording(file, [edit(x, "", *change, kind="dray.state.policy") for x in lines])
    return file


def edit(line, part, old, new, kind="dray.state.claim"):
    """The line with its payload changed, if it is a fact of that kind about ``part``."""
    if not isinstance(line, FactLine) or not line.subject.startswith(kind):
        return line
    if part and part not in line.subject.split("."):
        return line
    payload = bytes(line.payload).decode().replace(old, new)
    return msgspec.structs.replace(line, payload=msgspec.Raw(payload.encode()))


def edit_record(line, old, new):
    """The line with its payload changed, if it is a record."""
    if not isinstance(line, RecordLine):
        return line
    payload = bytes(line.payload).decode().replace(old, new)
    return msgspec.structs.replace(line, payload=msgspec.Raw(payload.encode()))


def is_record(line):
    return isinstance(line, RecordLine)


def first_decided(lines):
    """The first decision that the recording's facts cover."""
    assert isinstance(lines[0], Header)
    begins = next(line.sequence for line in lines if type(line).__name__ == "WholeLine")
    for line in lines:
        record = decode_record(bytes(line.payload)) if is_record(line) else None
        if isinstance(record, Decided) and record.facts_sequence > begins:
            return line, record
    raise AssertionError("nothing is decided in it")


def shown(divergence):
    return divergence.difference().splitlines()
