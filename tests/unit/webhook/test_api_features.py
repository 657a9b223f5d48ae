"""Whole cards, percent of a card, and a preference: what is read, made of it, and refused."""

import json

import pytest

P = "tensor-fusion.ai/"
NO_AMOUNTS = {P + "tflops-request": None, P + "vram-request": None}
WHOLE = {**NO_AMOUNTS, P + "dedicated-gpu": "true"}
QUARTER = {**NO_AMOUNTS, P + "compute-percent-request": "25"}


def devices_of(cluster, pod, patched):
    admitted = patched(pod, answer := cluster.admit(pod))
    shape = json.loads(admitted["metadata"]["annotations"][P + "shape"])
    return shape["spec"]["devices"], answer


def test_whole_cards_state_no_capacity_and_so_take_all_of_it(cluster, pod, patched):
    asked = pod({**WHOLE, P + "gpu-count": "2", P + "gpu-model": "A100"})
    devices, answer = devices_of(cluster, asked, patched)

    (request,) = devices["requests"]
    assert "capacity" not in request["exactly"]
    assert request["exactly"]["count"] == 2
    assert 'model == "A100"' in request["exactly"]["selectors"][0]["cel"]["expression"]
    assert "tflops" not in request["exactly"]["selectors"][0]["cel"]["expression"]
    assert answer.requested.understood["whole"] == "true"
    assert "tflops" not in answer.requested.understood


def test_whole_cards_are_asked_for_in_silence_where_devices_are_not_shared(cluster, pod):
    cluster.server(consumable_capacity=False)

    assert cluster.admit(pod(WHOLE)).warnings == ()


@pytest.mark.parametrize("name", ["tflops-request", "vram-request", "compute-percent-request"])
def test_amounts_are_refused_with_whole_cards(cluster, name):
    value = {"tflops-request": "100", "vram-request": "1Gi"}.get(name, "25")

    assert cluster.errors({**WHOLE, P + name: value}).endswith(
        f'annotation {P}{name} is "{value}": expected none together with {P}dedicated-gpu, '
        "which takes whole cards"
    )


def test_dedicated_gpu_false_changes_nothing(cluster, pod):
    plain, asked = cluster.admit(pod()), cluster.admit(pod({P + "dedicated-gpu": "false"}))

    assert asked.requested.template == plain.requested.template
    assert f"annotation {P}tflops-request is missing" in cluster.errors(
        {**WHOLE, P + "dedicated-gpu": "false"}
    )


def test_a_wrong_word_for_whole_cards_is_the_only_error(cluster):
    assert cluster.errors({**WHOLE, P + "dedicated-gpu": "yes"}).endswith(
        f'annotation {P}dedicated-gpu is "yes": expected "true" or "false"'
    )


def test_percent_is_left_to_who_knows_the_card(cluster, pod, patched):
    devices, answer = devices_of(cluster, pod({**QUARTER, P + "vram-request": "8Gi"}), patched)

    (request,) = devices["requests"]
    assert request["exactly"]["capacity"] == {"requests": {"virtual_vram": "8Gi"}}
    assert "tflops" not in request["exactly"]["selectors"][0]["cel"]["expression"]
    (config,) = devices["config"]
    assert config["requests"] == ["gpu-request"]
    assert config["opaque"]["parameters"] == {
        "apiVersion": "tensor-fusion.ai/v1",
        "kind": "GPULimits",
        "computePercentRequest": "25",
    }
    assert answer.requested.understood["tflops"] == "25 %"


def test_percent_alone_is_percent_of_the_memory_too(cluster, pod, patched):
    devices, _ = devices_of(cluster, pod({**QUARTER, P + "tflops-limit": "100"}), patched)

    assert "capacity" not in devices["requests"][0]["exactly"]
    parameters = devices["config"][0]["opaque"]["parameters"]
    assert (parameters["computePercentRequest"], parameters["vramPercentRequest"]) == ("25", "25")
    assert parameters["tflopsLimit"] == "100"


@pytest.mark.parametrize("percent", ["0", "-5", "101", "25%", "", "half", "1e9"])
def test_a_percentage_is_above_zero_and_at_most_a_hundred(cluster, percent):
    assert cluster.errors({**QUARTER, P + "compute-percent-request": percent}).endswith(
        f'annotation {P}compute-percent-request is "{percent}": expected a number above 0 and at '
        'most 100, percent of each card, such as "25"'
    )


def test_compute_is_asked_for_by_one_measure(cluster):
    assert cluster.errors({**QUARTER, P + "tflops-request": "100"}).endswith(
        f'annotation {P}tflops-request is "100": expected none together with '
        f"{P}compute-percent-request, which states compute by another measure"
    )


def test_a_limit_in_percent_is_handed_to_the_node(cluster, pod, patched):
    devices, _ = devices_of(cluster, pod({**QUARTER, P + "compute-percent-limit": "50"}), patched)

    assert devices["config"][0]["opaque"]["parameters"]["computePercentLimit"] == "50"
    assert cluster.admit(pod({P + "compute-percent-limit": "50"})).allowed


@pytest.mark.parametrize(
    ("more", "expected_text"),
    [
        ({P + "compute-percent-limit": "20"}, f'{P}compute-percent-request is "25"'),
        ({P + "compute-percent-limit": "0"}, "expected a number above 0 and at most 100"),
        (
            {P + "compute-percent-limit": "50", P + "tflops-limit": "100"},
            f"expected none together with {P}compute-percent-limit, which states compute by",
        ),
    ],
)
def test_a_limit_in_percent_is_not_below_the_request_and_the_only_one(cluster, more, expected_text):
    assert expected_text in cluster.errors({**QUARTER, **more})


def test_a_percentage_needs_an_allocator_that_knows_it(cluster):
    cluster.pool("shared", owner="kube-scheduler")

    assert f'annotation {P}compute-percent-request can\'t be met: GPUPool "shared"' in (
        cluster.errors(QUARTER)
    )


def test_where_devices_are_not_shared_a_percentage_is_a_whole_card(cluster, pod, patched):
    cluster.server(consumable_capacity=False)
    devices, answer = devices_of(cluster, pod(QUARTER), patched)

    assert "config" not in devices
    assert "the pod takes whole cards" in answer.warnings[0]


def test_a_preference_travels_with_the_claim(cluster, pod, patched):
    devices, answer = devices_of(cluster, pod({P + "prefer": "tflops desc | H100,A100"}), patched)

    assert devices["config"][0]["opaque"]["parameters"]["prefer"] == "tflops desc | H100,A100"
    assert devices["requests"][0]["exactly"]["capacity"]["requests"]["virtual_tflops"] == "100"
    assert answer.requested.understood["prefer"] == "tflops desc | H100,A100"
    assert answer.warnings == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected a preference"),
        ("tflops", "then desc for the most first or asc for the least first"),
        ("vram down", 'such as "tflops desc"; it has "vram down"'),
        ("TFLOPS desc", "expected tflops or vram"),
        ("compute desc", "expected tflops or vram"),
        ("H100 | tflops desc vram asc", "expected tflops or vram"),
        ("tflops desc |", "expected criteria such as"),
        ("H100,,A100", "expected criteria such as"),
        ("H" * 65, "expected criteria such as"),
        (" | ".join(["H100"] * 9), "expected at most 8 criteria"),
        (",".join(["H100"] * 33), "expected at most 32 models"),
    ],
)
def test_a_preference_that_is_none_is_refused(cluster, text, expected):
    message = cluster.errors({P + "prefer": text})

    assert f"annotation {P}prefer is " in message
    assert expected in message


def test_nobody_heeds_a_preference_in_a_pool_of_kube_schedulers(cluster, pod):
    cluster.pool("shared", owner="kube-scheduler")

    assert (
        "takes the first card that fits" in cluster.admit(pod({P + "prefer": "H100"})).warnings[0]
    )
