"""Shapes, names and comparison of derived templates."""

import copy
import hashlib
import json
from typing import Any

import msgspec
import pytest

from dray.api import json_codec
from dray.api.names import CLAIM_REFERENCE, DERIVED_FROM_LABEL, SHAPE
from dray.kube.ports import PODS, TEMPLATES, Changed
from dray_claim_controller.cache.cached_objects import CachedPod
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.garbage.decisions import unused_templates
from dray_claim_controller.templates.decisions import (
    Derived,
    Unusable,
    affected_by_base,
    derived,
    difference,
    waits_for_claim,
)

SPEC: dict[str, Any] = {
    "metadata": {"labels": {DERIVED_FROM_LABEL: "base"}},
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "gpu-request",
                    "exactly": {
                        "deviceClassName": "c",
                        "capacity": {"requests": {"virtual_vram": "1024Mi"}},
                    },
                }
            ]
        }
    },
}
TEXT = json.dumps(SPEC, sort_keys=True, separators=(",", ":"))
NAME = f"base-{hashlib.sha256(TEXT.encode()).hexdigest()[:10]}"


def seen(template: str = NAME, shape: str = TEXT, **changes: Any) -> CachedPod:
    """The pod as the picture holds it."""
    return cache_of(template, shape, **changes).pods["u"]


def cache_of(template: str = NAME, shape: str = TEXT, **changes: Any) -> ObjectCache:
    cache = ObjectCache()
    pod = {
        "metadata": {
            "uid": "u",
            "name": "pod",
            "namespace": "ns",
            "resourceVersion": "7",
            "annotations": {SHAPE: shape},
        },
        "spec": {
            "containers": [],
            "resourceClaims": [{"name": CLAIM_REFERENCE, "resourceClaimTemplateName": template}],
            **changes,
        },
    }
    cache.apply(PODS, Changed(pod))
    return cache


def test_the_template_is_the_shape_itself() -> None:
    found = derived(seen())

    assert found == Derived("ns", NAME, "base", SPEC)
    manifest = found.manifest()
    assert manifest["spec"] == SPEC
    assert manifest["metadata"]["labels"] == {DERIVED_FROM_LABEL: "base"}


@pytest.mark.parametrize(
    ("template", "shape", "words"),
    [
        ("base-0000000000", TEXT, "has the hash"),
        (f"base-{hashlib.sha256(b'no').hexdigest()[:10]}", "no", "is not JSON"),
        (f"base-{hashlib.sha256(b'{}').hexdigest()[:10]}", "{}", "has no spec"),
        *(
            (f"base-{hashlib.sha256(text.encode()).hexdigest()[:10]}", text, "has no labels")
            for text in ('{"metadata":"m","spec":{}}', '{"metadata":{"labels":["l"]},"spec":{}}')
        ),
    ],
)
def test_a_shape_that_cannot_be_used_says_why(template: str, shape: str, words: str) -> None:
    found = derived(seen(template, shape))

    assert isinstance(found, Unusable)
    assert words in found.message


def test_a_pod_without_a_shape_needs_no_template() -> None:
    pod = {"metadata": {"uid": "u", "name": "p", "namespace": "ns"}, "spec": {"containers": []}}
    cache = ObjectCache()
    cache.apply(PODS, Changed(pod))

    assert derived(cache.pods["u"]) is None
    assert not waits_for_claim(cache, cache.pods["u"])


def test_a_server_may_default_and_respell() -> None:
    stored = copy.deepcopy(SPEC)
    exactly = stored["spec"]["devices"]["requests"][0]["exactly"]
    exactly |= {"allocationMode": "ExactCount", "count": 1}
    exactly["capacity"]["requests"]["virtual_vram"] = "1Gi"

    assert difference(SPEC, stored) is None


def test_a_parameter_of_another_type_is_another_one() -> None:
    def of(value: object) -> dict[str, Any]:
        return {"config": [{"opaque": {"driver": "d", "parameters": {"on": value}}}]}

    assert difference(of(True), of(True)) is None
    assert difference(of(2), of(2.0)) is None, "one number"
    assert "parameters.on is 1, expected True" in str(difference(of(True), of(1)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"count": 2}, "count is 2"),
        ({"selectors": [{"cel": {"expression": "true"}}]}, "selectors is"),
        ({"tolerations": [{"operator": "Exists"}]}, "tolerations is"),
        ({"capacity": {"requests": {"virtual_vram": "1"}}}, "virtual_vram is '1'"),
        ({"adminAccess": True}, "adminAccess is True"),
        ({"deviceClassName": "other"}, "deviceClassName is 'other'"),
    ],
)
def test_a_template_that_gives_more_is_noticed(change: dict[str, Any], words: str) -> None:
    stored = copy.deepcopy(SPEC)
    stored["spec"]["devices"]["requests"][0]["exactly"] |= change

    assert words in str(difference(SPEC, stored))


def test_a_second_request_or_a_missing_label_is_noticed() -> None:
    more = copy.deepcopy(SPEC)
    more["spec"]["devices"]["requests"] *= 2
    bare: dict[str, Any] = {"spec": SPEC["spec"]}

    assert difference(SPEC, more) is not None
    assert difference(SPEC, bare) == "spec.metadata is missing"


@pytest.mark.parametrize(
    ("namespace", "bases", "affected"),
    [
        ("ns", ["ns/base"], True),
        ("dray-system", ["dray-system/base"], True),
        ("dray-system", ["dray-system/base", "ns/base"], False),
        ("other", ["other/base"], False),
    ],
)
def test_a_replaced_base_concerns_the_pods_that_looked_it_up(
    namespace: str, bases: list[str], affected: bool
) -> None:
    found = affected_by_base([seen()], namespace, "base", "dray-system", bases)

    assert bool(found) is affected


def test_a_derived_template_is_unused_once_no_pod_refers_to_it() -> None:
    cache = cache_of()
    for name, labels in ((NAME, {DERIVED_FROM_LABEL: "base"}), ("base", {})):
        metadata = {"uid": name, "name": name, "namespace": "ns", "labels": labels}
        cache.apply(TEMPLATES, Changed({"metadata": metadata, "spec": {}}))
    assert unused_templates(cache) == []

    ended = copy.deepcopy(cache.pods["u"].object)
    ended["status"] = {"phase": "Succeeded"}
    ended["metadata"]["resourceVersion"] = "8"
    cache.apply(PODS, Changed(ended))
    assert unused_templates(cache) == [f"ns/{NAME}"]


@pytest.mark.parametrize("depth", [200, 246, 2_000, 9_900])
def test_a_deep_shape_is_derived_and_compared(depth: int) -> None:
    """Wherever what is too deep to be decoded begins: in the annotation, or in the template."""

    def text(innermost: str) -> str:
        nested = "[" * depth + innermost + "]" * depth
        config = f'[{{"opaque":{{"driver":"d","parameters":{{"a":{nested}}}}}}}]'
        return f'{{"metadata":{{}},"spec":{{"devices":{{"config":{config}}}}}}}'

    def existing(innermost: str) -> Any:
        obj = f'{{"metadata":{{}},"spec":{text(innermost)}}}'.encode()
        return json_codec.decode(obj, msgspec.json.Decoder(dict[str, Any]))["spec"]

    name = f"base-{hashlib.sha256(text('1').encode()).hexdigest()[:10]}"
    wanted = derived(seen(name, text("1")))
    assert isinstance(wanted, Derived)
    assert difference(wanted.spec, existing("1")) is None
    assert difference(wanted.spec, existing("2")) is not None
    assert msgspec.json.encode(wanted.manifest()["spec"]) == text("1").encode()
