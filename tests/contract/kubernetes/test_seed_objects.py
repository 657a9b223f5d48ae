"""What `dray convert` and `dray cel translate` make of the seed, block by block."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "unit" / "user_guide_form" / "golden"
CRDS = ROOT / "deploy" / "helm" / "dray" / "crds"
CLUSTER_SCOPED = ("Node", "ResourceSlice", "GPUPool", "SchedulingConfigTemplate")
FOREIGN = {"VolcanoBackend": "operator.volcano.sh", "BindRequest": "scheduling.run.ai"}
WRITTEN_BY_SERVERS = ("uid", "resourceVersion", "creationTimestamp", "generation")


def parts_of(stored: Path) -> dict[str, str]:
    """The parts of a stored conversion by their titles."""
    found = re.split(r"^=== (.*)\n", stored.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def named(stored: Path) -> str:
    return f"{stored.parent.name}-{stored.stem}"


OBJECTS = [(named(stored), parts_of(stored)) for stored in sorted(GOLDEN.glob("*/yaml-*.txt"))]
SEED_FORM = [
    (name, parts)
    for name, parts in OBJECTS
    if "resource.k8s.io/" in parts["in"] or parts["in"].startswith("metadata:")
]
SELECTORS = [
    (f"{named(stored)}-{number}", text)
    for stored in sorted(GOLDEN.glob("*/cel-*.txt"))
    for number, (title, text) in enumerate(parts_of(stored).items())
    if title.startswith("out")
    and "no condition" not in parts_of(stored).get(title.replace("out", "why"), "")
]


def objects(text: str) -> Iterator[dict[str, Any]]:
    yield from (found for found in yaml.safe_load_all(text) if found)


def definition(kind: str, group: str, version: str) -> dict[str, Any]:
    """The least definition of a kind that dray does not know."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": f"{kind.lower()}s", "singular": kind.lower(), "kind": kind}
    served = {"name": version, "served": True, "storage": True}
    return {
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        },
    }


async def define(api: Any, obj: dict[str, Any], refused: Any) -> None:
    """Have the object's kind served, where it is not one of Kubernetes' own."""
    group, _, version = obj["apiVersion"].rpartition("/")
    if group == FOREIGN.get(obj["kind"]):
        wanted = definition(obj["kind"], group, version)
    elif group == "tensor-fusion.ai":
        wanted = yaml.safe_load((CRDS / f"{obj['kind'].lower()}s.yaml").read_text("utf-8"))
    else:
        return
    crds = api.path("customresourcedefinitions")
    try:
        await api.call("POST", crds, wanted)
    except refused as error:
        if error.code != 409:
            raise

    async def served() -> bool:
        try:
            await api.call("GET", path_of(api, obj))
        except refused:
            return False
        return True

    await api.until(served)


def path_of(api: Any, obj: dict[str, Any]) -> str:
    version, plural = obj["apiVersion"], f"{obj['kind'].lower()}s"
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if obj["kind"] in CLUSTER_SCOPED:
        return f"{base}/{plural}"
    namespace = obj["metadata"].get("namespace", api.namespace)
    return f"{base}/namespaces/{namespace}/{plural}"


async def apply(api: Any, obj: dict[str, Any]) -> Any:
    """Create an object as kubectl does with strict validation."""
    # What one cluster wrote, no other takes: 004 shows what `kubectl get` printed.
    metadata = {k: v for k, v in obj["metadata"].items() if k not in WRITTEN_BY_SERVERS}
    path = path_of(api, obj)
    wanted = {**obj, "metadata": metadata}
    made = await api.call("POST", path, wanted, fieldValidation="Strict")
    api.cleanup.append(f"{path}/{metadata['name']}")
    return made


@pytest.mark.parametrize("parts", [p for _, p in OBJECTS], ids=[name for name, _ in OBJECTS])
async def test_every_converted_object_passes_strict_validation(
    api: Any, refused: Any, parts: dict[str, str]
) -> None:
    found = list(objects(parts["out"]))
    assert found
    for obj in found:
        await define(api, obj, refused)
        made = await apply(api, obj)
        assert made["metadata"]["name"] == obj["metadata"]["name"]
        assert api.warnings == []


@pytest.mark.parametrize("parts", [p for _, p in SEED_FORM], ids=[name for name, _ in SEED_FORM])
async def test_the_form_that_the_seed_has_is_refused(
    api: Any, refused: Any, parts: dict[str, str]
) -> None:
    written = objects(parts.get("within", parts["in"]))
    of_the_seed = [obj for obj in written if obj["apiVersion"] == "resource.k8s.io/v1beta2"]
    assert of_the_seed
    for obj in of_the_seed:
        with pytest.raises(refused) as caught:
            await apply(api, {**obj, "apiVersion": "resource.k8s.io/v1"})
        assert caught.value.code in (400, 422)


PODS = [
    (name, [obj for obj in objects(parts.get("within", parts["in"])) if obj.get("kind") == "Pod"])
    for name, parts in OBJECTS
]
PODS = [(name, pods) for name, pods in PODS if pods]


@pytest.mark.parametrize("pods", [p for _, p in PODS], ids=[name for name, _ in PODS])
async def test_the_pods_of_the_seed_pass_strict_validation_as_they_are(
    api: Any, pods: list[dict[str, Any]]
) -> None:
    for pod in pods:
        made = await apply(api, pod)
        assert made["metadata"].get("annotations") == pod["metadata"].get("annotations")
        assert api.warnings == []


@pytest.mark.parametrize("parts", [p for _, p in SEED_FORM], ids=[name for name, _ in SEED_FORM])
async def test_the_version_that_the_seed_has_is_not_served(
    api: Any, refused: Any, parts: dict[str, str]
) -> None:
    for obj in objects(parts.get("within", parts["in"])):
        if obj["apiVersion"] == "resource.k8s.io/v1beta2":
            with pytest.raises(refused) as caught:
                await apply(api, obj)
            assert caught.value.code == 404


@pytest.mark.parametrize("selector", [s for _, s in SELECTORS], ids=[n for n, _ in SELECTORS])
async def test_every_translated_selector_is_admitted(api: Any, selector: str) -> None:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "selector"},
        "spec": api.claim("", api.request("gpu", selectors=[{"cel": {"expression": selector}}])),
    }
    template["spec"] = {"spec": template["spec"]["spec"]}

    made = await apply(api, template)

    exactly = made["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert exactly["selectors"] == [{"cel": {"expression": selector}}]
