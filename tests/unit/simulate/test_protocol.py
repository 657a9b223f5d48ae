"""The published protocol: who arrives when, what is measured, whom ties go to."""

import gzip
from collections import Counter

import numpy as np
import pytest

from dray.api.errors import PermanentError
from dray_cli.simulate.cluster import TieBreak
from dray_cli.simulate.protocol import run, workload
from dray_cli.simulate.trace import ClusterTrace, TraceNode, TracePod, read_trace

NODES = "sn,cpu_milli,memory_mib,gpu,model\nb,8000,1024,2,T4\na,4000,512,1,P100\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\n"
    "pod-2,1000,64,1,1000,V100|T4,LS\n"
    "pod-1,2000,128,0,0,,BE\n"
    "pod-3,500,32,1,250,,LS\n"
)
SHARE = TracePod(500, 32, 1, 250)
WHOLE = TracePod(1000, 64, 1, 1000, ("T4", "V100"))
NO_CARD = TracePod(2000, 128, 0, 0)


def write(folder, nodes=NODES, pods=PODS):
    paths = folder / "nodes.csv", folder / "pods.csv.gz"
    paths[0].write_text(nodes)
    paths[1].write_bytes(gzip.compress(pods.encode()))
    return paths


def test_nodes_keep_their_order_and_pods_come_by_name(tmp_path):
    trace = read_trace(*write(tmp_path))

    assert trace.nodes == (
        TraceNode("b", 8000, 1024, 2, "T4"),
        TraceNode("a", 4000, 512, 1, "P100"),
    )
    assert trace.pods == (NO_CARD, WHOLE, SHARE)
    assert trace.gpu_milli == 3000


def test_a_list_without_models_is_read(tmp_path):
    pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,1,1,2,1000\n"

    assert read_trace(*write(tmp_path, pods=pods)).pods == (TracePod(1, 1, 2, 1000),)


@pytest.mark.parametrize(
    ("nodes", "pods", "reported"),
    [
        (NODES.replace("cpu_milli", "cpus"), PODS, "no column cpu_milli"),
        (NODES.replace("8000", "many"), PODS, "line 2: cpu_milli is 'many'"),
        (NODES.replace(",2,", ",9,"), PODS, "gpu is 9, at most 8"),
        (NODES.replace(",2,", ",0,").replace(",1,", ",0,"), PODS, "no node has a card"),
        (NODES, PODS.replace("1,250", "1,1250"), "gpu_milli is 1250, expected 1 to 1000"),
        (NODES, PODS.replace("1,250", "2,250"), "2 cards with gpu_milli 250"),
        (NODES, PODS.replace("500,32", "-5,32"), "cpu_milli is -5, expected 0 or more"),
        (NODES, "name,cpu_milli\n", "no pod asks for a card"),
    ],
)
def test_errors_of_invalid_files_name_the_place(tmp_path, nodes, pods, reported):
    with pytest.raises(PermanentError, match=reported):
        read_trace(*write(tmp_path, nodes, pods))


def test_a_file_that_is_not_gzip_is_an_error(tmp_path):
    nodes, pods = write(tmp_path)
    pods.write_bytes(b"name,cpu_milli")

    with pytest.raises(PermanentError, match=r"pods\.csv\.gz can't be read"):
        read_trace(nodes, pods)


def trace_of(pods: int, cards: int) -> ClusterTrace:
    made = tuple(TracePod(100 + number, 1, 1, 500) for number in range(pods))
    return ClusterTrace((TraceNode("n", 1, 1, cards, "T4"),), made)


def test_all_pods_arrive_once_and_then_copies_up_to_130_per_cent():
    trace = trace_of(pods=10, cards=8)

    pods = workload(trace, 42)

    assert Counter(pods[:10]) == Counter(trace.pods)
    assert set(pods[10:]) <= set(trace.pods)
    asked = sum(pod.gpu_milli for pod in pods)
    assert asked <= 1.3 * trace.gpu_milli < asked + 500


def test_a_list_that_asks_for_more_is_taken_whole_and_without_copies():
    trace = trace_of(pods=40, cards=8)

    assert Counter(workload(trace, 1)) == Counter(trace.pods)


def test_a_seed_gives_an_order_and_another_seed_another_one():
    trace = trace_of(pods=30, cards=8)

    assert workload(trace, 5) == workload(trace, 5)
    assert workload(trace, 5)[:30] != workload(trace, 6)[:30]


class First:
    """Places a given number of pods, and no more."""

    def __init__(self, count: int) -> None:
        self.left = count

    def place(self, pod: TracePod) -> bool:
        self.left -= 1
        return self.left >= 0


def test_allocated_is_read_at_the_last_pod_within_the_share_that_was_asked_for():
    pods = [TracePod(1, 1, 1, 250)] * 13

    outcome = run(First(9), pods, gpu_milli=2500)

    # After pods 9, 10 and 13 exactly 90, 100 and 130 % were asked for; nine were placed.
    assert outcome.allocated == (90.0, 90.0, 90.0)
    assert (outcome.pods, outcome.dropped) == (13, 4)
    assert run(First(13), pods, gpu_milli=2500).allocated == (90.0, 100.0, 130.0)


def test_what_was_asked_for_beyond_130_per_cent_does_not_count():
    pods = [TracePod(1, 1, 1, 250)] * 20

    assert run(First(20), pods, gpu_milli=2500).allocated[-1] == 130.0


def test_progress_is_reported_in_steps_and_not_per_pod():
    reported: list[float] = []

    run(First(1000), [TracePod(1, 1, 1, 1)] * 1300, gpu_milli=1000, tell=reported.append)

    assert len(reported) == 20
    assert reported == sorted(reported)


def test_ties_by_name_are_one_order_of_all_nodes_and_by_chance_they_are_not():
    rows = np.arange(50)

    by_name = TieBreak("name", 42, 50)
    first = by_name.pick(rows)
    assert {by_name.pick(rows) for _ in range(20)} == {first}
    assert by_name.pick(rows[rows != first]) != first
    by_chance = TieBreak("random", 42, 50)
    assert len({by_chance.pick(rows) for _ in range(20)}) > 5


def test_ties_are_the_same_for_equal_seeds():
    rows = np.arange(50)

    for how in ("name", "random"):
        picks = [
            [one.pick(rows) for _ in range(5)]
            for one in (TieBreak(how, 7, 50), TieBreak(how, 7, 50))
        ]
        assert picks[0] == picks[1]
        other = TieBreak(how, 8, 50)
        assert picks[0] != [other.pick(rows) for _ in range(5)]
