"""Each annotation of the guide's §4: what is read, and what is refused in which words."""

import re
from pathlib import Path

import pytest
import yaml

P = "tensor-fusion.ai/"


def test_amounts_counts_and_names_are_read(cluster, pod):
    answer = cluster.admit(
        pod(
            {
                P + "dra-enabled": "true",
                P + "gpu-count": "2",
                P + "gpu-model": "A100",
                P + "qos": "high",
                P + "tflops-limit": "200",
                P + "vram-limit": "32Gi",
            }
        )
    )

    assert answer.requested is not None
    assert answer.requested.understood == {
        "gpus": "2",
        "tflops": "100",
        "vram": "16Gi",
        "pool": "shared",
        "model": "A100",
        "qos": "high",
        "tflops-limit": "200",
        "vram-limit": "32Gi",
        "selector": "generated",
        "dra": "annotation",
        "base": "dray-system/tensor-fusion-gpu-template",
        "binder": "kube-scheduler",
    }


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("dra-enabled", "yes", 'expected "true" or "false"'),
        ("dra-enabled", "True", 'expected "true" or "false"'),
        ("tflops-request", "a lot", "expected a Kubernetes quantity"),
        ("tflops-request", "100 TFLOPS", "expected a Kubernetes quantity"),
        ("tflops-request", "", "expected a Kubernetes quantity"),
        ("tflops-request", "-5", "expected a quantity above zero"),
        ("tflops-request", "0", "expected a quantity above zero"),
        ("tflops-request", "0.5", "expected at least 1"),
        ("vram-request", "16GB", "expected a Kubernetes quantity"),
        ("vram-request", "1e308", "expected at most 9223372036854775807"),
        ("vram-request", "8Ei", "expected at most 9223372036854775807"),
        ("tflops-limit", "1e999", "expected at most 9223372036854775807"),
        ("vram-request", "-16Gi", "expected a quantity above zero"),
        ("gpupool", "", "expected the name of a GPUPool"),
        ("gpupool", "My Pool", "expected the name of a GPUPool"),
        ("gpu-count", "0", "expected a whole number from 1 to 32"),
        ("gpu-count", "33", "expected a whole number from 1 to 32"),
        ("gpu-count", "abc", "expected a whole number from 1 to 32"),
        ("gpu-count", "-1", "expected a whole number from 1 to 32"),
        ("gpu-count", "1.5", "expected a whole number from 1 to 32"),
        ("gpu-model", " ", "expected a GPU model"),
        ("gpu-model", "A" * 65, "64 characters at most"),
        ("gpu-model", "A100 ", 'expected no space around it; is "A100" meant?'),
        ("qos", "best", 'expected one of "low", "medium", "high", "critical"'),
        ("dra-cel-expression", " ", "expected a CEL expression"),
        ("tflops-limit", "much", "expected a Kubernetes quantity"),
        ("tflops-limit", "99", f'{P}tflops-request is "100"'),
        ("vram-limit", "8Gi", f'{P}vram-request is "16Gi"'),
        ("vram-limit", "-1", "expected a quantity above zero"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(cluster, name, value, allowed):
    message = cluster.errors({P + name: value})

    shown = value if len(value) <= 80 else value[:80] + "…"
    assert f'annotation {P}{name} is "{shown}": ' in message
    assert allowed in message


@pytest.mark.parametrize("name", ["tflops-request", "vram-request"])
def test_a_missing_request_is_named_with_an_example(cluster, name):
    message = cluster.errors({P + name: None})

    assert f"annotation {P}{name} is missing" in message
    assert 'such as "' in message


def test_all_errors_are_reported_at_once(cluster):
    message = cluster.errors(
        {
            P + "tflops-request": "-1",
            P + "vram-request": None,
            P + "gpu-count": "33",
            P + "qos": "best",
            P + "gpupool": "nowhere",
            P + "dra-cel-expression": "device.attributes[",
        },
        nodeName="n1",
    )

    assert "7 errors" in message
    for name in ("tflops-request", "vram-request", "gpu-count", "qos", "gpupool", "cel-expression"):
        assert name in message
    assert "spec.nodeName" in message


@pytest.mark.parametrize("count", ["1", "32"])
def test_counts_up_to_the_most_results_of_a_claim_are_allowed(cluster, pod, count):
    assert cluster.admit(pod({P + "gpu-count": count})).allowed


def test_fractions_and_exponents_are_quantities(cluster, pod):
    answer = cluster.admit(pod({P + "tflops-request": "12.5", P + "vram-request": "16e9"}))

    assert answer.requested.understood["tflops"] == "12.5"
    assert answer.requested.understood["vram"] == "16G"


def test_a_limit_equal_to_the_request_is_allowed(cluster, pod):
    assert cluster.admit(pod({P + "tflops-limit": "100", P + "vram-limit": "16384Mi"})).allowed


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("tflop-request", "tflops-request"),
        ("vram-requests", "vram-request"),
        ("gpu-pool", "gpupool"),
        ("QoS", "qos"),
        ("cel-expression", "dra-cel-expression"),
    ],
)
def test_an_unknown_annotation_is_a_warning_with_the_nearest_name(cluster, pod, written, meant):
    answer = cluster.admit(pod({P + written: "1"}))

    assert answer.allowed
    assert answer.warnings == (
        f"annotation {P}{written} is not known and has no effect; did you mean {P}{meant}?",
    )


def test_an_unknown_annotation_near_to_nothing_names_nothing(cluster, pod):
    answer = cluster.admit(pod({P + "zzz": "1"}))

    assert answer.warnings == (f"annotation {P}zzz is not known and has no effect",)


def test_a_memory_request_without_suffix_is_questioned(cluster, pod):
    answer = cluster.admit(pod({P + "vram-request": "16"}))

    assert answer.allowed
    assert 'is "16Gi" meant?' in answer.warnings[0]


@pytest.mark.parametrize("written", ["1500m", "1e3", "+5"])
def test_no_invalid_amount_is_suggested(cluster, pod, written):
    (warning,) = cluster.admit(pod({P + "vram-request": written})).warnings

    assert "less than 1Mi" in warning
    assert "meant" not in warning


def test_a_flood_of_unknown_annotations_is_counted(cluster, pod):
    flood = {f"{P}qo{number:03}": "" for number in range(300)}

    warnings = cluster.admit(pod(flood)).warnings

    assert len(warnings) == 11
    assert warnings[-1] == f"290 more annotations of {P} are not known either"


@pytest.mark.parametrize(
    ("value", "shown"),
    [("a\nb", "a\\nb"), ("a\x1b[2J", "a\\x1b[2J"), ("a\u202eb", "a\\u202eb"), ("模型", "模型")],
)
def test_what_cannot_be_printed_is_shown_escaped(cluster, value, shown):
    assert f'qos is "{shown}": ' in cluster.errors({P + "qos": value})


def test_an_expression_that_grows_too_long_is_an_error(cluster):
    long = 'device.attributes["model"] == "' + "a" * 10_200 + '"'

    message = cluster.errors({P + "dra-cel-expression": long})

    assert "Too long: may not be more than 10240 bytes; it has 10323" in message


def test_pods_without_our_annotations_are_left_alone(cluster, pod):
    plain = pod()
    plain["metadata"]["annotations"] = {"example.com/note": "x"}

    assert cluster.admit(plain).patch == ()


GUIDE = Path(__file__).parents[3] / "examples" / "seed" / "001-user-guide.txt"
SNIPPETS = re.findall(
    r"^```yaml\n(annotations:.*?)^```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL
)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_the_guides_own_snippets_are_understood(cluster, pod, snippet):
    cluster.pool("production-pool")
    cluster.pool("prod-pool")
    annotations = yaml.safe_load(snippet)["annotations"]

    answer = cluster.admit(pod(annotations))

    assert answer.warnings == ()
    assert answer.allowed == (annotations.get(P + "dra-enabled") != "false"), answer.message


@pytest.mark.parametrize(
    ("annotations", "model"),
    [
        ({"prefer": "fastest"}, "fastest"),
        ({"gpu-model": "a100"}, "a100"),
        ({"prefer": "H100,t4 | tflops desc"}, "t4"),
        ({"prefer": "H100,A100", "gpu-model": "A100"}, ""),
        ({"prefer": "tflops desc"}, ""),
    ],
)
def test_a_model_in_lower_case_is_admitted_with_a_warning(cluster, pod, annotations, model):
    answer = cluster.admit(pod({P + name: text for name, text in annotations.items()}))

    warnings = [one for one in answer.warnings if "compared as they are written" in one]
    assert answer.allowed
    assert [f'the model "{model}"' in one for one in warnings] == ([True] if model else [])
