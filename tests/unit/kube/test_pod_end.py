"""How a pod ended, from the status that its kubelet wrote."""

from typing import Any

from dray.kube.pod_end import pod_end

LATE = "2026-01-01T00:02:00Z"


def container(name: str, code: int, at: str = "2026-01-01T00:01:00Z", why: str = "Error") -> Any:
    terminated = {"exitCode": code, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": at}
    return {"name": name, "state": {"terminated": terminated | {"reason": why}}}


def pod(phase: str, *containers: Any, **status: str) -> Any:
    return {
        "spec": {"nodeName": "sim-2"},
        "status": {"phase": phase, "containerStatuses": list(containers), **status},
    }


def words(obj: Any) -> str:
    end = pod_end(obj)
    assert end is not None
    return end.words()


def test_a_pod_that_has_not_ended_has_no_end() -> None:
    assert pod_end(pod("Running")) is None
    assert pod_end({"spec": {}}) is None


def test_a_pod_that_completed_says_where_until_when_and_its_exit_code() -> None:
    done = pod("Succeeded", container("main", 0, LATE, "Completed"))

    assert words(done) == f"ran on sim-2 until {LATE}, exit code 0"


def test_of_several_containers_each_exit_code_and_the_latest_end_are_shown() -> None:
    failed = pod("Failed", container("main", 1), container("side", 137, LATE, "OOMKilled"))

    assert words(failed) == f"ran on sim-2 until {LATE}, exit codes: main 1, side 137 (OOMKilled)"


def test_an_evicted_pod_has_the_kubelets_reason() -> None:
    evicted = pod("Failed", container("main", 137), reason="Evicted", message="low on memory")

    assert words(evicted).endswith(", exit code 137, Evicted (low on memory)")


def test_a_rejected_pod_never_ran() -> None:
    rejected = pod("Failed", reason="NodeAffinity", message="Pod was rejected: no match")

    end = pod_end(rejected)

    assert end is not None
    assert not end.ran
    assert end.words() == "was rejected on sim-2: NodeAffinity: Pod was rejected: no match"


def test_a_pod_that_ended_before_it_got_a_node_says_so() -> None:
    late = {"spec": {}, "status": {"phase": "Failed", "reason": "DeadlineExceeded"}}

    assert words(late) == "never got a node: DeadlineExceeded"
