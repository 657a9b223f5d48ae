"""Containers with requests of their own: one claim, and who refers to what in it."""

import json
from pathlib import Path

import yaml
from tests.unit.webhook.containers import SPEC, gives

from dray.user_guide_form.documents import convert

P = "tensor-fusion.ai/"
CLAIM = "tensor-fusion-gpu-claim"
D = "tensor-fusion.ai.dra-driver"
EXAMPLE = Path(__file__).parents[3] / "examples" / "04-forms-of-request"


def admitted(cluster, pod, patched):
    made = patched(pod, answer := cluster.admit(pod))
    shape = json.loads(made["metadata"]["annotations"][P + "shape"])
    return made["spec"], shape["spec"]["devices"], answer


def uses(spec):
    containers = [*spec.get("initContainers", ()), *spec["containers"]]
    return {
        one["name"]: [
            use.get("request", "*")
            for use in (one.get("resources") or {}).get("claims") or ()
            if use["name"] == CLAIM
        ]
        for one in containers
    }


def requests_of(devices):
    return {
        one["name"]: (
            one["exactly"]["count"],
            (one["exactly"].get("capacity") or {}).get("requests") or {},
        )
        for one in devices["requests"]
    }


def test_each_container_refers_to_its_own_request_of_one_claim(cluster, pod, patched):
    own = gives(
        main={"tflops-request": 100, "vram-request": "16Gi", "gpu-count": 2},
        init={"compute-percent-request": "10", "vram-request": "1Gi"},
        side={"dedicated-gpu": True},
    )
    asked = pod({**own, P + "tflops-request": None, P + "vram-request": None}, **SPEC)
    spec, devices, answer = admitted(cluster, asked, patched)

    assert [entry["name"] for entry in spec["resourceClaims"]] == [CLAIM]
    assert uses(spec) == {
        "init": ["gpu-request-init"],
        "side": ["gpu-request-side"],
        "main": ["gpu-request-main"],
        "proxy": [],
    }
    assert requests_of(devices) == {
        "gpu-request-init": (1, {"virtual_vram": "1Gi"}),
        "gpu-request-side": (1, {}),
        "gpu-request-main": (2, {"virtual_tflops": "100", "virtual_vram": "16Gi"}),
    }
    parameters = {
        tuple(one["requests"]): one["opaque"]["parameters"]["container"]
        for one in devices["config"]
    }
    assert parameters == {(f"gpu-request-{name}",): name for name in ("init", "side", "main")}
    assert answer.requested.understood["gpus"] == "4"
    assert answer.requested.understood["containers"] == (
        "init: 1 × 10 % tflops, 1Gi vram; side: 1 × whole card; main: 2 × 100 tflops, 16Gi vram"
    )


def test_what_a_container_leaves_out_is_the_pods(cluster, pod, patched):
    own = gives(
        main={"gpu-model": "H100"}, side=2, init={"vram-request": 2**30, "tflops-request": 5}
    )
    asked = pod({**own, P + "gpu-model": "A100", P + "vram-limit": "32Gi"}, **SPEC)
    _, devices, _ = admitted(cluster, asked, patched)

    pods = {"virtual_tflops": "100", "virtual_vram": "16Gi"}
    assert requests_of(devices) == {
        "gpu-request-init": (1, {"virtual_tflops": "5", "virtual_vram": "1073741824"}),
        "gpu-request-side": (2, pods),
        "gpu-request-main": (1, pods),
    }
    models = [
        next(
            m for m in ("A100", "H100") if m in one["exactly"]["selectors"][0]["cel"]["expression"]
        )
        for one in devices["requests"]
    ]
    assert models == ["A100", "A100", "H100"]
    limits = [one["opaque"]["parameters"].get("vramLimit") for one in devices["config"]]
    assert limits == [None, "32Gi", "32Gi"]


def test_tensor_fusions_counts_are_read(cluster, pod, patched):
    asked = pod({P + "container-gpu-count": '{"main": 2, "side": "1"}'}, **SPEC)
    _, devices, _ = admitted(cluster, asked, patched)

    assert {name: count for name, (count, _) in requests_of(devices).items()} == {
        "gpu-request-side": 1,
        "gpu-request-main": 2,
    }


def test_inject_container_limits_who_gets_the_claim(cluster, pod, patched):
    asked = pod({P + "inject-container": "main, side"}, **SPEC)
    spec, devices, answer = admitted(cluster, asked, patched)

    assert uses(spec) == {"init": [], "side": ["*"], "main": ["*"], "proxy": []}
    assert answer.requested.template == cluster.admit(pod(**SPEC)).requested.template
    assert len(devices["requests"]) == 1


def test_containers_without_a_request_of_their_own_share_the_pods(cluster, pod, patched):
    asked = pod(
        {**gives(side={"dedicated-gpu": "true"}), P + "inject-container": "init,main,side"}, **SPEC
    )
    spec, devices, _ = admitted(cluster, asked, patched)

    assert uses(spec) == {
        "init": ["gpu-request"],
        "side": ["gpu-request-side"],
        "main": ["gpu-request"],
        "proxy": [],
    }
    assert list(requests_of(devices)) == ["gpu-request", "gpu-request-side"]


def test_the_bases_other_requests_are_for_all_who_get_something(cluster, pod, patched, template_of):
    base = template_of()
    nic = {"name": "nic", "exactly": {"deviceClassName": "nic.example.com"}}
    devices = base.spec["spec"]["devices"]
    devices["requests"].append(nic)
    devices["constraints"] = [{"requests": ["gpu-request", "nic"], "matchAttribute": "x/numa"}]
    cluster.view.apply(base)
    spec, made, _ = admitted(cluster, pod(gives(main=1, side=1), **SPEC), patched)

    assert uses(spec)["main"] == ["gpu-request-main", "nic"]
    assert uses(spec)["proxy"] == []
    assert made["constraints"][0]["requests"] == ["nic", "gpu-request-side", "gpu-request-main"]


def test_old_servers_tell_the_gpus_of_each_container_apart(cluster, pod, patched):
    cluster.server(version="v1.34.4")
    spec, devices, _ = admitted(cluster, pod(gives(main=2, side=1), **SPEC), patched)

    assert uses(spec)["main"] == ["gpu-request-main-0", "gpu-request-main-1"]
    assert devices["constraints"] == [
        {
            "requests": ["gpu-request-main-0", "gpu-request-main-1"],
            "distinctAttribute": D + "/uuid",
        }
    ]
    assert [one["opaque"]["parameters"]["container"] for one in devices["config"]] == [
        "side",
        "main",
    ]


def test_names_of_requests_are_short_enough_and_each_is_given_once(cluster, pod, patched):
    long = "c" * 63
    cluster.server(version="v1.34.4")
    containers = [{"name": "a"}, {"name": "a-0"}, {"name": long}]
    own = {"a": 2, "a-0": 1, long: 2}
    spec, devices, _ = admitted(cluster, pod(gives(**own), containers=containers), patched)

    names = [one["name"] for one in devices["requests"]]
    assert len(set(names)) == len(names) == 5
    assert max(map(len, names)) <= 63
    assert sorted(name for each in uses(spec).values() for name in each) == sorted(names)


def test_an_admitted_pod_is_admitted_the_same_again(cluster, pod, patched):
    asked = pod({**gives(main=1, side=2), P + "inject-container": "main,side,init"}, **SPEC)
    once = patched(asked, cluster.admit(asked))

    assert patched(once, cluster.admit(once)) == once


def test_the_order_in_which_containers_are_named_makes_no_other_shape(cluster, pod):
    names = {
        cluster.admit(pod(gives(**own), **SPEC)).requested.template
        for own in ({"main": 1, "side": 2}, {"side": 2, "main": 1})
    }

    assert len(names) == 1


def test_amounts_that_nobody_takes_are_worth_a_word(cluster, pod):
    own = gives(main={"dedicated-gpu": True})
    (warning,) = cluster.admit(pod(own, **SPEC)).warnings

    assert warning.startswith("nobody gets what the pod itself asks for")
    shared = {**own, P + "inject-container": "main,init"}
    assert cluster.admit(pod(shared, **SPEC)).warnings == ()


def test_kube_scheduler_can_allocate_for_containers_too(cluster, pod, patched):
    cluster.pool("shared", owner="kube-scheduler")
    spec, devices, _ = admitted(cluster, pod(gives(main=1, side=2), **SPEC), patched)

    assert uses(spec)["side"] == ["gpu-request-side"]
    assert requests_of(devices)["gpu-request-side"][0] == 2
    share = gives(main={"compute-percent-request": 10})
    assert "compute-percent-request can't be met" in cluster.errors(share, **SPEC)


def test_the_examples_pods_are_admitted_without_a_word(cluster, pod):
    cluster.pool("forms", dedicated=True)
    pods = list(yaml.safe_load_all((EXAMPLE / "02-pods.yaml").read_text("utf-8")))

    assert [cluster.admit(one).warnings for one in pods] == [()] * 5
    for file in EXAMPLE.glob("*.yaml"):
        text = file.read_text("utf-8")
        assert convert(text).text == text
