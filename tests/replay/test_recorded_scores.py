"""A recording has the scores of each decision, as they were when it was taken."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dray.messages.decisions import Decided
from dray.recording.file import read_recording
from dray.recording.lines import Line
from dray_cli.__main__ import cli
from dray_cli.replay.allocator import recorded_scores
from dray_cli.replay.timeline import records, timeline


@pytest.fixture
def lines(recording: Path) -> list[Line]:
    return list(read_recording(recording))


@pytest.fixture
def pods(lines: list[Line]) -> list[tuple[str, str]]:
    """Namespaces and names of the pods that are decided, the last one last."""
    found: dict[tuple[str, str], None] = {}
    for log in timeline(lines):
        for _, record in records(log):
            for pod in record.pods if isinstance(record, Decided) else ():
                found.pop((pod.namespace, pod.name), None)
                found[pod.namespace, pod.name] = None
    return list(found)


def replayed(file: Path, *arguments: str) -> Any:
    return CliRunner().invoke(cli, ["replay", str(file), "--scores", *arguments])


def test_a_chosen_node_has_the_best_score(lines: list[Line], pods: list[tuple[str, str]]) -> None:
    found = [recorded_scores(lines, *pod) for pod in pods[-8:]]
    scored = [one for one in found if one and one.scores and not one.scores.first]

    assert scored
    for one in scored:
        assert one.scores is not None
        assert one.scores.nodes[0].node == one.node


def test_people_see_when_it_was_and_what_the_score_is_made_of(
    recording: Path, pods: list[tuple[str, str]]
) -> None:
    namespace, name = pods[-1]
    shown = replayed(recording, f"pod/{name}", "-n", namespace).stdout.splitlines()

    assert shown[0].startswith("Scores when it was decided (record ")
    assert any(line.split()[:2] == ["NODE", "SCORE"] for line in shown)
    assert sum(line.endswith("the pod's") for line in shown) == 1


def test_a_pod_that_it_does_not_decide_is_named(recording: Path) -> None:
    done = replayed(recording, "pod/absent", "-n", "team")

    assert "holds no decision about pod team/absent" in str(done.exception)
