"""The stand-in's decisions: who is admitted, which claims may be used, what CDI ids mean."""

import json
from pathlib import Path

import pytest

from dray.api.errors import InvalidInputError
from dray_sandbox.kubelet.__main__ import parse, plans_of
from dray_sandbox.kubelet.admission import admit
from dray_sandbox.kubelet.cdi import resolve
from dray_sandbox.kubelet.claims import (
    NotStartedError,
    PluginDevice,
    claim_info,
    claim_names,
    container_devices,
)
from dray_sandbox.kubelet.node import node_object
from dray_sandbox.kubelet.plan import NODE_CAPACITY, NodePlan, parse_label, parse_node
from dray_sandbox.kubelet.statuses import creating, rejected, running, succeeded

NOW = "2026-11-21T15:00:00Z"
NODE = node_object(
    NodePlan(
        "n1",
        Path("p"),
        Path("r"),
        Path("c"),
        {"zone": "a"},
        {"cpu": "4", "memory": "8Gi", "pods": "3"},
    ),
    now_unix_s=0,
)


def pod(*, cpu="1", memory="1Gi", port=None, **spec):
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    if port:
        container["ports"] = [{"hostPort": port}]
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "pod-uid"},
        "spec": {"containers": [container], **spec},
    }


def required_zone(zone):
    """Node affinity to one zone."""
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.mark.parametrize(
    ("candidate", "admitted", "reason"),
    [
        (pod(cpu="4"), [], None),
        (pod(cpu="4001m"), [], "OutOfcpu"),
        (pod(cpu="2"), [pod(cpu="2"), pod(cpu="1m")], "OutOfcpu"),
        (pod(memory="4Gi"), [pod(memory="4Gi")], None),
        (pod(memory="4Gi"), [pod(memory="4097Mi")], "OutOfmemory"),
        (pod(cpu="0", memory="0"), [pod(cpu="5")], None),
        (pod(), [pod(cpu="0")] * 2, None),
        (pod(), [pod(cpu="0")] * 3, "OutOfpods"),
        (pod(port=80), [pod(port=81)], None),
        (pod(port=80), [pod(port=80)], "NodePorts"),
        (pod(nodeSelector={"zone": "a", "kubernetes.io/hostname": "n1"}), [], None),
        (pod(nodeSelector={"zone": "b"}), [], "NodeAffinity"),
        (pod(affinity=required_zone("a")), [], None),
        (pod(affinity=required_zone("b")), [], "NodeAffinity"),
    ],
)
def test_a_pod_is_admitted_only_if_the_node_has_what_it_asks(candidate, admitted, reason):
    rejection = admit(candidate, admitted, NODE)
    assert (rejection.reason if rejection else None) == reason


def test_the_labels_and_taints_that_count_are_the_node_objects():
    labelled = NODE | {"metadata": {"name": "n1", "labels": {"added": "later"}}}
    assert admit(pod(nodeSelector={"added": "later"}), [], labelled) is None
    assert admit(pod(nodeSelector={"zone": "a"}), [], labelled).message == (
        "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    )
    taints = [{"key": "k", "effect": "NoSchedule"}, {"key": "k", "effect": "NoExecute"}]
    tainted = NODE | {"spec": {"taints": taints}}
    assert admit(pod(), [], tainted).reason == "TaintToleration"
    tolerant = pod(tolerations=[{"key": "k", "operator": "Exists", "effect": "NoExecute"}])
    assert admit(tolerant, [], tainted) is None


def test_other_resources_are_admitted_as_far_as_the_node_has_them():
    def asking(amount, resource):
        made = pod()
        made["spec"]["containers"][0]["resources"]["requests"] = {resource: amount}
        return made

    allocatable = NODE["status"]["allocatable"] | {"example.com/nic": "2"}
    node = NODE | {"status": {"allocatable": allocatable}}
    nic = asking("2", "example.com/nic")
    assert admit(nic, [], node) is None
    assert admit(nic, [asking("1", "example.com/nic")], node).reason == "OutOfexample.com/nic"
    assert admit(asking("1", "ephemeral-storage"), [], node).reason == "OutOfephemeral-storage"
    # Of an extended resource that it has never heard of, a kubelet says nothing.
    assert admit(asking("1", "example.com/fpga"), [], node) is None


def test_host_ports_clash_only_on_the_same_address_and_protocol():
    one, other = pod(port=53), pod(port=53)
    other["spec"]["containers"][0]["ports"][0]["protocol"] = "UDP"
    assert admit(one, [other], NODE) is None
    one["spec"]["containers"][0]["ports"][0]["hostIP"] = "10.0.0.1"
    other["spec"]["containers"][0]["ports"][0] |= {"protocol": "TCP", "hostIP": "10.0.0.2"}
    assert admit(one, [other], NODE) is None
    del other["spec"]["containers"][0]["ports"][0]["hostIP"]
    assert admit(one, [other], NODE).reason == "NodePorts"


def test_claims_are_found_by_name_or_by_what_was_made_of_their_template():
    made = pod(
        resourceClaims=[
            {"name": "a", "resourceClaimName": "direct"},
            {"name": "b", "resourceClaimTemplateName": "t"},
            {"name": "c", "resourceClaimTemplateName": "t"},
        ]
    )
    with pytest.raises(NotStartedError, match=r"pod claim b: .*not been created"):
        claim_names(made)
    statuses = [{"name": "b", "resourceClaimName": "made-b"}, {"name": "c"}]
    made["status"] = {"resourceClaimStatuses": statuses}
    assert claim_names(made) == {"a": ("direct", False), "b": ("made-b", True)}


def claim(*, allocated=True, reserved=("pod-uid",), owner="pod-uid"):
    results = [{"driver": "d1"}, {"driver": "d2"}, {"driver": "d1"}]
    status = {"allocation": {"devices": {"results": results}}} if allocated else {}
    status["reservedFor"] = [{"uid": uid} for uid in reserved]
    return {
        "metadata": {
            "name": "c",
            "namespace": "ns",
            "uid": "u",
            "ownerReferences": [{"uid": owner, "controller": True}],
        },
        "status": status,
    }


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (claim(allocated=False), "is not allocated"),
        (claim(reserved=()), "is not allowed to use"),
        (claim(reserved=("other",)), "is not allowed to use"),
        (claim(owner="other"), "was not created for this pod"),
    ],
)
def test_a_claim_that_is_not_the_pods_to_use_holds_it_back(made, problem):
    with pytest.raises(NotStartedError, match=problem):
        claim_info(pod(), made, must_own=True)


def test_a_usable_claim_names_its_drivers_once():
    assert claim_info(pod(), claim(), must_own=True).drivers == ("d1", "d2")
    assert claim_info(pod(), claim(owner="other"), must_own=False).uid == "u"


def test_a_container_gets_the_devices_of_the_requests_it_names():
    made = pod()
    made["spec"]["containers"] = [
        {"name": "all", "resources": {"claims": [{"name": "gpu"}]}},
        {"name": "one", "resources": {"claims": [{"name": "gpu", "request": "r1"}]}},
        {"name": "none"},
    ]
    of_request = {"1": ("r1",), "2": ("r2",), "3": ()}
    prepared = {
        "gpu": [
            PluginDevice("driver", "pool", name, requests, (f"x={name}",))
            for name, requests in of_request.items()
        ]
    }
    found = container_devices(made, prepared)
    assert {name: sorted(ids) for name, ids in found.items()} == {
        "all": ["x=1", "x=2", "x=3"],
        "one": ["x=1", "x=3"],
        "none": [],
    }


SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "v.example/gpu",
    "devices": [{"name": "1a", "containerEdits": {"env": ["A=1", "B=x=y"]}}],
}


def write(folder, spec, name="v.json"):
    (folder / name).write_text(json.dumps(spec))


def test_cdi_ids_become_environment(tmp_path):
    write(tmp_path, SPEC)
    assert resolve(["v.example/gpu=1a"], tmp_path) == {"A": "1", "B": "x=y"}
    assert resolve([], tmp_path / "absent") == {}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (SPEC | {"kind": "v.example/other"}, "unresolvable CDI devices v.example/gpu=1a"),
        (SPEC | {"cdiVersion": "0.3.0"}, "begins with a digit, which needs 0.5.0"),
        (SPEC | {"cdiVersion": "9.0.0"}, "version '9.0.0'"),
        (SPEC | {"invented": 1}, "unknown field invented"),
        (SPEC | {"devices": [{"name": "1a", "containerEdits": {}}]}, "has no edits"),
        (SPEC | {"devices": [*SPEC["devices"], *SPEC["devices"]]}, "defined twice"),
        (
            SPEC
            | {
                "devices": [
                    {"name": "1a", "containerEdits": {"deviceNodes": [{"path": "/no/gpu"}]}}
                ]
            },
            "needs /no/gpu",
        ),
    ],
)
def test_what_a_runtime_would_refuse_is_refused(tmp_path, spec, problem):
    write(tmp_path, spec)
    with pytest.raises(NotStartedError, match=problem):
        resolve(["v.example/gpu=1a"], tmp_path)


def test_half_a_file_is_an_error_not_a_crash(tmp_path):
    (tmp_path / "v.json").write_text("{")
    with pytest.raises(NotStartedError, match="is not JSON"):
        resolve(["v.example/gpu=1a"], tmp_path)


def test_statuses_go_from_waiting_to_running_to_terminated():
    made = pod()
    for status, state, ready in (
        (creating(made, "10.0.0.254", NOW), "waiting", "False"),
        (running(made, "10.0.0.1", NOW), "running", "True"),
        (succeeded(made, NOW), "terminated", "False"),
    ):
        (container,) = status["containerStatuses"]
        assert list(container["state"]) == [state]
        conditions = {one["type"]: one["status"] for one in status["conditions"]}
        assert conditions["Ready"] == conditions["ContainersReady"] == ready
        assert conditions["PodScheduled"] == "True"
    assert rejected(made, "OutOfcpu", "why", NOW)["message"] == "Pod was rejected: why"


def test_foreign_conditions_stay_and_times_move_only_with_the_status():
    made = pod()
    made["status"] = {
        "conditions": [
            {"type": "Foreign", "status": "True"},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "earlier"},
        ]
    }
    conditions = {one["type"]: one for one in running(made, "ip", NOW)["conditions"]}
    assert conditions["Foreign"]["status"] == "True"
    assert conditions["PodScheduled"]["lastTransitionTime"] == "earlier"
    assert conditions["Ready"]["lastTransitionTime"] == NOW


def test_the_command_line_makes_plans():
    options = parse(
        [
            "--node=a:/p:/r:/c",
            "--node=b:/p2:/r2:/c2",
            "--label=b:x=1,y=2",
            "--capacity=cpu=8",
            "--containers-port=1025",
        ]
    )
    first, second = plans_of(options)
    assert (first.name, first.plugins_dir, first.labels) == ("a", Path("/p"), {})
    assert second.labels == {"x": "1", "y": "2"}
    assert second.capacity == NODE_CAPACITY | {"cpu": "8"}
    assert second.containers_port == 1025


def test_the_api_server_finds_the_kubelets_port_in_the_node():
    plan = NodePlan("n", Path("/p"), Path("/r"), Path("/c"), containers_port=1025)
    status = node_object(plan, now_unix_s=0.0)["status"]
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 1025}}
    assert {"type": "InternalDNS", "address": "localhost"} in status["addresses"]


@pytest.mark.parametrize("text", ["n", "n:/p:/r", ":/p:/r:/c"])
def test_a_wrong_node_is_refused_with_the_form(text):
    with pytest.raises(InvalidInputError, match="NAME:PLUGINS_DIR:REGISTRY_DIR:CDI_DIR"):
        parse_node(text)


def test_a_wrong_label_is_refused():
    with pytest.raises(InvalidInputError):
        parse_label("n1:novalue")
