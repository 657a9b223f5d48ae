"""The derived template: completed, kept, hashed."""

import copy
import hashlib
import json

from dray.api.names import DEVICE_CLASS

P = "tensor-fusion.ai/"
D = "tensor-fusion.ai.dra-driver"


def shape_of(cluster, pod, patched):
    admitted = patched(pod, answer := cluster.admit(pod))
    return json.loads(admitted["metadata"]["annotations"][P + "shape"]), answer


def test_the_request_is_completed_with_count_selector_and_the_virtual_pair(cluster, pod, patched):
    shape, _ = shape_of(cluster, pod({P + "gpu-count": "2", P + "gpu-model": "A100"}), patched)

    (request,) = shape["spec"]["devices"]["requests"]
    exactly = request["exactly"]
    (selector,) = exactly.pop("selectors")
    assert request["name"] == "gpu-request"
    assert exactly == {
        "deviceClassName": DEVICE_CLASS,
        "allocationMode": "ExactCount",
        "count": 2,
        "capacity": {"requests": {"virtual_tflops": "100", "virtual_vram": "16Gi"}},
    }
    for part in ('model == "A100"', 'pool_name == "shared"', 'phase == "Running"', "used_by"):
        assert part in selector["cel"]["expression"]


def test_an_absent_qos_adds_no_clause(cluster, pod, patched):
    without, _ = shape_of(cluster, pod(), patched)
    with_qos, _ = shape_of(cluster, pod({P + "qos": "high"}), patched)

    assert ".qos" not in json.dumps(without)
    assert '.qos == \\"high\\"' in json.dumps(with_qos)


def test_the_labels_name_pool_and_base(cluster, pod, patched):
    shape, _ = shape_of(cluster, pod(), patched)

    assert shape["metadata"]["labels"] == {
        P + "gpupool": "shared",
        P + "derived-from": "tensor-fusion-gpu-template",
        P + "resource-claim-template": "true",
        P + "shape-version": "2",
    }


def test_the_name_carries_ten_digits_of_the_shapes_hash(cluster, pod, patched):
    asked = pod()
    text = patched(asked, answer := cluster.admit(asked))["metadata"]["annotations"][P + "shape"]

    digits = hashlib.sha256(text.encode()).hexdigest()[:10]
    assert answer.requested.template == f"tensor-fusion-gpu-template-{digits}"


def test_equal_requests_have_one_shape_however_they_are_written(cluster, pod):
    names = {
        cluster.admit(pod({P + "vram-request": text})).requested.template
        for text in ("16Gi", "16384Mi", "16777216Ki")
    }

    assert len(names) == 1


def test_a_custom_expression_replaces_every_clause_but_the_pools(cluster, pod, patched):
    expression = 'device.attributes["model"] == "H100"'
    shape, answer = shape_of(
        cluster, pod({P + "dra-cel-expression": expression, P + "qos": "high"}), patched
    )

    exactly = shape["spec"]["devices"]["requests"][0]["exactly"]
    pool, custom = (entry["cel"]["expression"] for entry in exactly["selectors"])
    assert 'pool_name == "shared"' in pool
    assert f'device.attributes["{D}"].model == "H100"' in custom
    assert "phase" not in pool + custom
    assert exactly["capacity"]["requests"] == {"virtual_tflops": "100", "virtual_vram": "16Gi"}
    assert answer.requested.understood["selector"] == "custom"


def test_old_servers_get_one_request_per_gpu_distinct_by_uuid(cluster, pod, patched, template_of):
    base = copy.deepcopy(template_of())
    devices = base.spec["spec"]["devices"]
    devices["constraints"] = [{"requests": ["gpu-request"], "matchAttribute": D + "/node_name"}]
    cluster.view.apply(base)
    cluster.server(version="v1.34.4")

    shape, _ = shape_of(cluster, pod({P + "gpu-count": "2", P + "qos": "low"}), patched)

    devices = shape["spec"]["devices"]
    names = ["gpu-request-0", "gpu-request-1"]
    assert [request["name"] for request in devices["requests"]] == names
    assert [request["exactly"]["count"] for request in devices["requests"]] == [1, 1]
    assert devices["constraints"] == [
        {"requests": names, "matchAttribute": D + "/node_name"},
        {"requests": names, "distinctAttribute": D + "/uuid"},
    ]
    assert devices["config"][0]["requests"] == names


def test_without_consumable_capacity_whole_cards_are_taken_with_a_word(cluster, pod, patched):
    cluster.server(version="v1.34.4", consumable_capacity=False)

    shape, answer = shape_of(cluster, pod({P + "gpu-count": "2"}), patched)

    exactly = shape["spec"]["devices"]["requests"][0]["exactly"]
    assert "capacity" not in exactly
    assert exactly["count"] == 2
    assert "the pod takes whole cards" in answer.warnings[0]


def test_limits_qos_and_isolation_travel_as_driver_config(cluster, pod, patched):
    asked = pod(
        {
            P + "gpupool": "dedicated",
            P + "tflops-limit": "200",
            P + "vram-limit": "32Gi",
            P + "qos": "high",
        }
    )

    shape, _ = shape_of(cluster, asked, patched)

    assert shape["spec"]["devices"]["config"] == [
        {
            "requests": ["gpu-request"],
            "opaque": {
                "driver": D,
                "parameters": {
                    "apiVersion": "tensor-fusion.ai/v1",
                    "kind": "GPULimits",
                    "tflopsLimit": "200",
                    "vramLimit": "32Gi",
                    "qos": "high",
                    "isolation": "soft",
                },
            },
        }
    ]


def test_without_limits_there_is_no_driver_config(cluster, pod, patched):
    shape, _ = shape_of(cluster, pod(), patched)

    assert "config" not in shape["spec"]["devices"]


def test_everything_else_of_the_base_template_is_kept(cluster, pod, patched, template_of):
    own = {"cel": {"expression": f'device.attributes["{D}"].node_total_gpus > 4'}}
    base = copy.deepcopy(template_of(selectors=[own], tolerations=[{"key": "a", "value": "b"}]))
    nic = {"name": "nic", "exactly": {"deviceClassName": "nic", "count": 1}}
    base.spec["spec"]["devices"]["requests"].append(nic)
    base.spec["spec"]["devices"]["config"] = [{"opaque": {"driver": "nic", "parameters": {}}}]
    base.spec["metadata"] = {"labels": {"team": "a"}}
    cluster.view.apply(base)

    shape, _ = shape_of(cluster, pod(), patched)

    devices = shape["spec"]["devices"]
    exactly = devices["requests"][0]["exactly"]
    assert exactly["selectors"][1] == own
    assert exactly["tolerations"] == [{"key": "a", "value": "b"}]
    assert devices["requests"][1] == nic
    assert devices["config"] == [{"opaque": {"driver": "nic", "parameters": {}}}]
    assert shape["metadata"]["labels"]["team"] == "a"


def test_a_shape_has_no_annotations_of_which_kube_controller_manager_would_die(
    cluster, pod, patched, template_of
):
    base = copy.deepcopy(template_of())
    base.spec["metadata"] = {"annotations": {"note": "b"}}
    cluster.view.apply(base)

    shape, _ = shape_of(cluster, pod(), patched)

    assert "annotations" not in shape["metadata"]


def test_the_only_request_of_our_class_is_completed_whatever_its_name(
    cluster, pod, patched, template_of
):
    base = copy.deepcopy(template_of())
    base.spec["spec"]["devices"]["requests"][0]["name"] = "card"
    cluster.view.apply(base)

    shape, _ = shape_of(cluster, pod({P + "gpu-count": "3"}), patched)

    assert shape["spec"]["devices"]["requests"][0]["exactly"]["count"] == 3


def test_the_base_template_itself_is_never_changed(cluster, pod):
    before = copy.deepcopy(cluster.view.templates)

    cluster.admit(pod({P + "gpu-count": "4", P + "qos": "low"}))

    assert cluster.view.templates == before
