"""What every service decided comes out again; what was changed since is shown with its event."""

import json
from collections import Counter

import msgspec
import pytest
from click.testing import CliRunner

from dray.messages.base import subject_prefix
from dray.messages.decisions import decode_record
from dray.messages.inputs import AgentNoted, ControllerNoted, Reviewed
from dray.recording.file import BadRecordingError, read_recording, write_recording
from dray.recording.lines import FactLine, InputLine, RecordLine, UnknownLine
from dray.recording.redaction import redacted
from dray_claim_controller.cache.snapshot import take_snapshot
from dray_claim_controller.journal_replayer import JournalReplayer
from dray_cli.__main__ import cli
from dray_cli.replay.outcome import SERVICES
from dray_cli.replay.run import replay
from tools.recordings import services
from tools.simulation import cluster
from tools.simulation.run import Size

CONTROLLER = subject_prefix(ControllerNoted)
AGENT = subject_prefix(AgentNoted)
WEBHOOK = subject_prefix(Reviewed)


@pytest.fixture(scope="module")
def lines(four_services):
    return read_recording(four_services)


@pytest.fixture(scope="module")
def outcome(lines):
    return replay(lines)


def test_the_recording_holds_what_goes_wrong_in_clusters(lines):
    records = [decode_record(bytes(x.payload)) for x in lines if isinstance(x, RecordLine)]
    kinds = Counter(type(record).__name__ for record in records)
    journals = noted(lines, CONTROLLER)
    lives = {(line["instance"], line["life"]) for line in journals}

    assert sum(isinstance(x, FactLine | RecordLine | InputLine) for x in lines) >= 1000
    assert services.missing(lines) == []
    assert kinds["Waiting"] >= 3
    assert kinds["Decided"] >= 5
    assert len(lives) > 2
    assert any(x["about"] == "deleted" for x in journals)
    assert any(x["about"] == "may-void" and x["answer"] for x in journals)


def test_a_run_of_todays_code_replays():
    """The committed recording may be older than the code; this one never is."""
    lines, run = services.record(5, Size(pods=2, faults=1, seconds=6.0))

    outcome = replay(lines)

    assert run.failures == []
    assert outcome.divergence is None
    assert all(tally.compared for tally in outcome.services.values())


SECRET = "hunter2"


def with_secrets(make_pod):
    """Pods of users who have something to hide."""

    def plain_pod(name, *, life_s):
        pod = make_pod(name, life_s=life_s)
        (container,) = pod["spec"]["containers"]
        container["env"] = [{"name": "PASSWORD", "value": SECRET}]
        container["args"] = [f"--token={SECRET}"]
        pod["spec"]["volumes"] = [{"name": "v", "csi": {"volumeAttributes": {"key": SECRET}}}]
        pod["metadata"]["managedFields"] = [{"manager": SECRET}]
        applied = json.dumps(pod)
        pod["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = applied
        return pod

    return plain_pod


def test_pods_secrets_are_in_no_recorded_byte_and_every_decision_comes_out_the_same(monkeypatch):
    monkeypatch.setattr(cluster, "plain_pod", with_secrets(cluster.plain_pod))

    lines, run = services.record(5, Size(pods=6, faults=2, seconds=15.0))

    assert run.failures == []
    assert SECRET not in "".join(msgspec.json.encode(line).decode() for line in lines)
    outcome = replay(lines)
    assert outcome.divergence is None
    for service in ("webhook", "claim-controller", "node-agent"):
        assert outcome.services[service].compared.total() >= 10, service


def test_the_recording_holds_nothing_that_decisions_do_not_read(lines):
    reviews = [json.loads(bytes(x.payload)) for x in lines if is_input(x, WEBHOOK)]
    for review in reviews:
        plural = "pods" if review.get("path", "mutate-pods").endswith("pods") else "resourceclaims"
        for obj in filter(None, (review["request"][name] for name in ("object", "oldObject"))):
            assert redacted(plural, obj) == obj
    events = [line["data"] for line in noted(lines, CONTROLLER) if line["what"] == "consumed"]
    for event in events:
        assert [redacted(event["resource"], obj) for obj in event["objects"]] == event["objects"]
    assert reviews
    assert events


def test_every_decision_of_every_service_comes_out_the_same(outcome):
    assert outcome.divergence is None
    assert not outcome.unknown
    for service, at_least in zip(SERVICES, (40, 200, 15, 50), strict=True):
        tally = outcome.services[service]
        assert tally.compared.total() >= at_least, service
        assert tally.uncovered <= tally.compared.total() / 10, service


def test_the_pure_rooms_of_every_service_were_asked(outcome):
    controller = outcome.services["claim-controller"].compared
    assert {"publish", "next-step", "may-commit", "template", "garbage", "pool-status"} <= {
        *controller
    }
    assert {"taints", "must-begin", "may-void"} <= {*controller}
    assert {"publish", "prepare", "is-live"} <= {*outcome.services["node-agent"].compared}
    assert {"mutate-pods", "validate-pods", "mutate-claims", "validate-claims"} <= {
        *outcome.services["webhook"].compared
    }


def test_an_edited_event_of_the_claim_controller_is_found(lines):
    """A node's memory was another: the next fact about it says so."""
    edited = [edit(x, CONTROLLER, '"memory":"64Gi"', '"memory":"63Gi"') for x in lines]

    divergence = replay(edited).services["claim-controller"].divergence

    assert divergence.asked.about == "publish"
    assert divergence.cause.data["resource"] == "nodes"
    assert "memory_bytes" in divergence.difference()
    assert any("  event " in line and " nodes n" in line for line in divergence.lines())


def test_changed_code_of_the_claim_controller_is_found(lines, monkeypatch):
    """An allocation is written without a mark before it."""
    monkeypatch.setattr(
        "dray_claim_controller.execution.decisions.next_step.Mark", lambda claim: None
    )

    divergence = replay(lines).services["claim-controller"].divergence

    assert divergence.asked.about == "next-step"
    assert "Mark" in divergence.difference()


def test_an_edited_event_of_a_node_agent_is_found(lines):
    edited = [edit(x, AGENT, '"owner":"dray"', '"owner":"kube-scheduler"') for x in lines]

    divergence = replay(edited).services["node-agent"].divergence

    assert divergence.asked.about == "publish"
    assert "taints" in divergence.difference()


def test_a_changed_policy_of_the_node_agent_is_found(lines, monkeypatch):
    monkeypatch.setattr(
        "dray_node_agent.decisions.claim_devices.VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
    )

    divergence = replay(lines).services["node-agent"].divergence

    assert divergence.asked.about == "prepare"
    assert "CUDA_VISIBLE_DEVICES" in divergence.difference()


def test_a_changed_policy_of_the_webhook_is_found(lines):
    """The scheduling template no longer switches dray on."""
    edited = [
        edit(x, "dray.state.policy", '"dra_enabled":true', '"dra_enabled":false') for x in lines
    ]

    divergence = replay(edited).services["webhook"].divergence

    assert divergence.reviewed.path == "mutate-pods"
    assert "allowed" in divergence.difference()


def test_an_edited_claim_under_review_is_found(lines):
    edited = [edit(x, WEBHOOK, '"deviceClassName"', '"deviceClass"') for x in lines]

    divergence = replay(edited).services["webhook"].divergence

    assert divergence.reviewed.path in ("mutate-claims", "mutate-pods", "validate-claims")


def test_one_services_difference_hides_no_other(lines):
    edited = [edit(x, AGENT, '"owner":"dray"', '"owner":"kube-scheduler"') for x in lines]

    outcome = replay(edited)

    assert outcome.services["node-agent"].divergence is not None
    assert outcome.services["claim-controller"].compared.total() >= 200


def test_unknown_names_are_counted(lines):
    newer = [edit(x, AGENT, '"about":"is-live"', '"about":"is-loved"') for x in lines]
    strange = InputLine(
        sequence=1, subject="dray.input.oracle.v7.a", time_unix_s=0.0, payload=msgspec.Raw(b"{}")
    )

    unknown = replay([*newer, strange, UnknownLine(kind="surprise")]).unknown

    assert unknown["node-agent question 'is-loved'"] > 0
    assert unknown["input 'oracle.v7'"] == 1
    assert unknown["line 'surprise'"] == 1


@pytest.mark.parametrize(
    ("prefix", "old", "new", "named"),
    [
        (CONTROLLER, '"resource":"nodes"', '"resauce":"nodes"', r"event \d+ \(listed\).*KeyError"),
        (CONTROLLER, '"objects":[', '"objects":5,"o":[', r"event \d+ \(listed\).*TypeError"),
        (CONTROLLER, '"decision":{', '"decided":{', r"\(next-step\) of claim-controller"),
        (CONTROLLER, '"instance":', '"instant":', r"input \d+ \(dray.input.claim-controller"),
        (AGENT, '"is-live","uid":', '"is-live","uit":', r"\(is-live\) of node-agent"),
        (WEBHOOK, '"uid":', '"uit":', r"input \d+ \(dray.input.webhook"),
        (WEBHOOK, '"userInfo":', '"userInfo":7,"u":', r"review .* of 'webhook'"),
        ("dray.state.pod", '"revision":', '"rev":', r"fact \d+"),
    ],
)
def test_a_line_that_cant_be_taken_is_named(lines, prefix, old, new, named):
    edited = [edit(x, prefix, old, new) for x in lines]

    with pytest.raises(BadRecordingError, match=named):
        replay(edited)


def test_an_answer_whose_patch_is_none_is_shown_as_it_is(lines):
    edited = [edit(x, WEBHOOK, '"patch":"', '"patch":"***') for x in lines]

    divergence = replay(edited).services["webhook"].divergence

    assert '-    "patch": "***' in divergence.difference()


def test_broken_code_is_not_an_unknown_event(lines, monkeypatch):
    """An error of the code that folds must not pass for something of another version."""

    def broken(self, resource, event):
        raise KeyError("no such thing")

    monkeypatch.setattr("dray_claim_controller.cache.object_cache.ObjectCache.apply", broken)

    with pytest.raises(BadRecordingError, match="no such thing"):
        replay(lines)


def longest_life(lines):
    """The inputs of the claim-controller that ran longest."""
    lives = {}
    for line in lines:
        if is_input(line, CONTROLLER):
            data = json.loads(bytes(line.payload))
            lives.setdefault((data["instance"], data["life"]), []).append(line)
    return max(lives.values(), key=len)


def test_after_a_lost_line_nothing_is_compared_until_all_is_known_again(lines):
    life = longest_life(lines)
    at = lines.index(life[len(life) // 2])

    tally = replay([*lines[:at], *lines[at + 1 :]]).services["claim-controller"]

    assert tally.divergence is None
    assert tally.uncovered > 0


def test_a_replay_may_begin_in_the_middle_of_a_life(lines):
    """All that a claim-controller knew, written in one piece, stands for what came before."""
    life = longest_life(lines)
    half = len(life) // 2
    again = JournalReplayer()
    for line in noted(life[:half], CONTROLLER):
        if line["what"] == "consumed":
            again.consume(line["about"], line["data"])
    head = json.loads(bytes(life[half - 1].payload)) | {"what": "known", "about": ""}
    head["data"] = msgspec.to_builtins(take_snapshot(again._cache))
    begun = msgspec.structs.replace(life[half - 1], payload=msgspec.Raw(msgspec.json.encode(head)))

    tally = replay([lines[0], begun, *life[half:]]).services["claim-controller"]

    assert tally.divergence is None
    assert tally.uncovered == 0
    assert tally.compared.total() >= 10


def test_the_verb_counts_by_service_and_shows_the_event(lines, tmp_path):
    file = tmp_path / "edited.jsonl"
    write_recording(
        file, [edit(x, CONTROLLER, '"memory":"64Gi"', '"memory":"63Gi"') for x in lines]
    )

    result = CliRunner().invoke(cli, ["replay", str(file)])

    assert result.exit_code == 1
    assert "claim-controller: DIFFERENT" in result.output
    assert "node-agent:       equal: " in result.output
    assert "The events about it, newest first:\n  event " in result.output
    assert "+++ replayed" in result.output


def is_input(line, prefix):
    return isinstance(line, InputLine) and line.subject.startswith(f"{prefix}.")


def number(line):
    return json.loads(bytes(line.payload))["number"]


def noted(lines, prefix):
    """The journal's lines as data, with what was left out."""
    found = [json.loads(bytes(line.payload)) for line in lines if is_input(line, prefix)]
    return [{"about": "", "answer": None, **line} for line in found]


def edit(line, prefix, old, new):
    """The line with its payload changed, if its subject begins so."""
    if not isinstance(line, InputLine | FactLine) or not line.subject.startswith(f"{prefix}."):
        return line
    payload = bytes(line.payload).decode().replace(old, new)
    return msgspec.structs.replace(line, payload=msgspec.Raw(payload.encode()))
