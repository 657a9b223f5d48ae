"""Recordings are read as they were written, and refused by name where they can't be."""

import gzip
import subprocess
from pathlib import Path

import msgspec
import pytest

from dray.recording.file import BadRecordingError, read_recording, write_recording
from dray.recording.lines import (
    FORMAT,
    FactLine,
    GapLine,
    Header,
    RecordLine,
    StreamLine,
    UnknownLine,
    WholeLine,
)

PAYLOAD = msgspec.Raw(b'{"a": 1,  "spaces":"kept"}')
LINES = [
    Header(dray="1.0", domains=("pool",), streams={"S": "t"}),
    FactLine(sequence=7, subject="dray.state.tick.v1", time_unix_s=1.25, payload=PAYLOAD),
    WholeLine(sequence=7),
    GapLine(first=8, last=9),
    StreamLine(name="S", created="u"),
    RecordLine(domain="pool", epoch=1, sequence=1, time_unix_s=2.0, payload=PAYLOAD),
]


@pytest.mark.parametrize("name", ["it.jsonl", "it.jsonl.gz"])
def test_what_was_written_is_read_byte_for_byte(tmp_path, name):
    write_recording(tmp_path / name, LINES)

    again = read_recording(tmp_path / name)

    assert [type(line) for line in again] == [type(line) for line in LINES]
    assert bytes(again[1].payload) == bytes(PAYLOAD)
    assert again[0] == LINES[0]


def test_equal_recordings_are_equal_files(tmp_path):
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_recording(tmp_path / name, LINES)

    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_the_line_that_was_cut_off_is_named(tmp_path):
    file = tmp_path / "cut.jsonl"
    write_recording(file, LINES)
    file.write_bytes(file.read_bytes()[:-20])

    with pytest.raises(BadRecordingError, match=r"line 6: .*cut off"):
        read_recording(file)


def test_a_compressed_file_that_was_cut_off_is_refused(tmp_path):
    file = tmp_path / "cut.jsonl.gz"
    write_recording(file, LINES)
    file.write_bytes(file.read_bytes()[:-12])

    with pytest.raises(BadRecordingError, match=r"cut\.jsonl\.gz was cut off"):
        read_recording(file)


@pytest.mark.parametrize("name", ["cut.jsonl", "cut.jsonl.gz"])
def test_what_is_whole_of_a_cut_file_can_be_had_as_the_error_says(tmp_path, name):
    file = tmp_path / name
    many = [*LINES, *(WholeLine(sequence=7 * number**3) for number in range(20_000))]
    write_recording(file, many)
    file.write_bytes(file.read_bytes()[: -(file.stat().st_size // 3)])

    with pytest.raises(BadRecordingError) as refused:
        read_recording(file)
    command = str(refused.value).rpartition("complete lines: ")[2]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path, stderr=subprocess.DEVNULL)

    whole = read_recording(tmp_path / "whole.jsonl")
    assert len(whole) > 1000
    assert whole[:6] == LINES


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_compression_is_detected_from_a_files_content(tmp_path, suffix):
    write_recording(tmp_path / f"it.{suffix}", LINES)
    other = (tmp_path / f"it.{suffix}").rename(tmp_path / "renamed.gz.jsonl")

    assert len(read_recording(other)) == len(LINES)


def test_damage_within_a_compressed_file_is_one_sentence(tmp_path):
    file = tmp_path / "it.jsonl.gz"
    write_recording(file, LINES)
    whole = file.read_bytes()

    for at in range(10, len(whole)):
        file.write_bytes(whole[:at] + bytes((whole[at] ^ 0xFF,)) + whole[at + 1 :])
        with pytest.raises(BadRecordingError, match=r"it\.jsonl"):
            read_recording(file)


@pytest.mark.parametrize("name", ["absent/it.jsonl", "absent/it.jsonl.gz"])
def test_a_file_that_cant_be_made_is_named(tmp_path, name):
    with pytest.raises(BadRecordingError, match=r"absent/it.*No such file.*folder that exists"):
        write_recording(tmp_path / name, LINES)


def test_a_full_disk_is_one_sentence():
    with pytest.raises(BadRecordingError, match="No space left"):
        write_recording(Path("/dev/full"), LINES)


def test_a_file_without_header_is_not_a_recording(tmp_path):
    file = tmp_path / "other.jsonl"
    write_recording(file, LINES[1:])

    with pytest.raises(BadRecordingError, match="dray record"):
        read_recording(file)


def test_a_kind_of_line_that_nobody_knows_is_kept_by_name(tmp_path):
    file = tmp_path / "newer.jsonl"
    write_recording(file, LINES)
    file.write_text(file.read_text() + '{"line":"surprise","more":1}\n')

    assert read_recording(file) == [*LINES, UnknownLine(kind="surprise")]


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "text", ['{"line":"whole"}', '{"sequence":1}', "[]", "", "words", "\x00", DEEP]
)
def test_a_line_that_is_wrong_is_refused(tmp_path, text):
    file = tmp_path / "other.jsonl"
    write_recording(file, LINES)
    before = file.read_text()
    file.write_text(f"{before}{text}\n{before}")

    with pytest.raises(BadRecordingError, match=r"line 7: no line of a recording"):
        read_recording(file)


@pytest.mark.parametrize("text", ['{"line":"header","format":"new"}', "# Title", "{", "", DEEP])
def test_the_error_for_another_file_says_what_writes_recordings(tmp_path, text):
    file = tmp_path / "other.jsonl"
    file.write_text(f"{text}\n")

    with pytest.raises(BadRecordingError, match=r"line 1: no header.*dray record FILE"):
        read_recording(file)


def test_a_newer_format_names_the_version_that_reads_it(tmp_path):
    file = tmp_path / "newer.jsonl"
    write_recording(file, [Header(format=FORMAT + 1, dray="9.9")])

    with pytest.raises(BadRecordingError, match=r"9\.9"):
        read_recording(file)


def test_compressed_recordings_are_lines_inside(tmp_path):
    write_recording(tmp_path / "it.jsonl.gz", LINES)

    assert len(gzip.decompress((tmp_path / "it.jsonl.gz").read_bytes()).splitlines()) == len(LINES)
