"""Time slices are set by a program, whose refusal is an error with its words."""

import pytest

from dray_node_agent.gpus.source import TimeSliceError
from dray_node_agent.gpus.time_slices import set_time_slice


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Makes a stand-in for nvidia-smi; returns how it was called."""
    calls = tmp_path / "calls"

    def make(ends: str):
        file = tmp_path / "nvidia-smi"
        file.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n{ends}\n')
        file.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
        return calls

    return make


def test_the_cards_slice_is_set(program):
    calls = program("exit 0")
    set_time_slice("GPU-1", 2)
    assert calls.read_text() == "compute-policy -i GPU-1 --set-timeslice=2\n"


def test_a_refusal_has_the_programs_words(program):
    program('echo "Insufficient Permissions"; exit 4')
    with pytest.raises(TimeSliceError, match="ended with 4: Insufficient Permissions"):
        set_time_slice("GPU-1", 2)


def test_a_missing_program_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TimeSliceError, match="nvidia-smi"):
        set_time_slice("GPU-1", 2)
