"""The custom resources: one source of truth, valid structural schemas, the seeds accepted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from dray.api.enforcement import Enforcement
from dray.api.names import DEVICE_CLASS, DRAY_NAMESPACE, DRIVER
from dray.kube.bind_request import BindRequest
from dray.kube.convert import policy_from, pool_from
from dray.kube.resource_fields import CustomResource
from dray.user_guide_form.documents import convert
from dray_sandbox.apiserver.structural import rule_errors
from tools.generate import custom_resources
from tools.generate.resources import (
    CUSTOM_RESOURCES,
    GPUPool,
    SchedulingConfigTemplate,
    parse,
)

ROOT = Path(__file__).parents[3]
CRD_FILES = ROOT / custom_resources.OUTPUT.folder

SEED_CONFIG = """
apiVersion: tensor-fusion.ai/v1
kind: SchedulingConfigTemplate
metadata:
  name: default-scheduling-config
spec:
  # Enable DRA
  dra:
    enable: true
    # Optional: specify ResourceClaimTemplate name
    resourceClaimTemplateName: "tensor-fusion-gpu-template"
  # Other configurations
  placement:
    mode: CompactFirst
"""
SEED_CONFIG_OF_THE_APPENDIX = """
apiVersion: tensor-fusion.ai/v1
kind: SchedulingConfigTemplate
metadata:
  name: default-config
spec:
  dra:
    enable: true
  placement:
    mode: CompactFirst
"""
SEED_POOL = """
apiVersion: tensor-fusion.ai/v1
kind: GPUPool
metadata:
  name: my-gpu-pool
spec:
  # Associate SchedulingConfigTemplate
  schedulingConfigTemplate: "default-scheduling-config"

  # Other configurations...
"""
SEED_POOL_OF_THE_APPENDIX = """
apiVersion: tensor-fusion.ai/v1
kind: GPUPool
metadata:
  name: default-pool
spec:
  schedulingConfigTemplate: "default-config"
"""
FULL_POOL = """
apiVersion: tensor-fusion.ai/v1
kind: GPUPool
metadata: {name: full}
spec:
  nodeSelector: {accelerator: h100}
  owner: dray
  dedicated: true
  default: true
  schedulingConfigTemplate: default-config
  qosConfig: {defaultQoS: high}
  capacityConfig: {oversubscription: {tflopsRatio: 1.5, vramRatio: 2}}
  isolation: soft
  enforcer: mps
  mps: {defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 8Gi}
  unhealthyTaintEffect: NoExecute
  allowedNamespaces: [team-a]
"""


def served(kind: type[CustomResource]) -> Any:
    """The schema of the committed manifest."""
    text = (CRD_FILES / f"{kind.RESOURCE.plural}.yaml").read_text()
    (version,) = yaml.safe_load(text)["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def nodes(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every schema within a schema."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{path}.*")


@pytest.mark.parametrize("kind", CUSTOM_RESOURCES)
def test_schemas_are_structural(kind: type[CustomResource]) -> None:
    """The rules of apiextensions.k8s.io/v1 that a real API server checks."""
    for path, schema in nodes(served(kind)):
        assert "$ref" not in schema, path
        if schema.get("x-kubernetes-int-or-string"):
            assert schema["anyOf"] == [{"type": "integer"}, {"type": "string"}], path
            continue
        assert "anyOf" not in schema, path
        assert "title" not in schema, path
        assert schema.get("type"), path
        assert not ({"properties", "additionalProperties"} <= schema.keys()), path
        if schema["type"] == "array":
            assert "items" in schema, path
        if "default" in schema and schema["type"] == "string" and "enum" in schema:
            assert schema["default"] in schema["enum"], path
        if schema["type"] == "object" and not path.endswith(".metadata"):
            kinds = {"properties", "additionalProperties", "x-kubernetes-preserve-unknown-fields"}
            assert kinds & schema.keys(), path


@pytest.mark.parametrize("kind", CUSTOM_RESOURCES)
def test_what_people_write_is_described(kind: type[CustomResource]) -> None:
    spec = served(kind)["properties"]["spec"]
    for path, schema in nodes(spec, ".spec"):
        if not path.endswith(("[]", ".*")):
            assert schema.get("description"), path


@pytest.mark.parametrize("kind", CUSTOM_RESOURCES)
def test_columns_name_fields_that_exist(kind: type[CustomResource]) -> None:
    known = {path for path, _ in nodes(served(kind))}
    for column in kind.COLUMNS:
        path = column.path.split("[")[0]
        assert path in known or path.startswith(".metadata."), column.path


def test_scopes_and_status_subresources() -> None:
    made = {kind.__name__: custom_resources.crd(kind)["spec"] for kind in CUSTOM_RESOURCES}

    assert made["GPUPool"]["scope"] == "Cluster"
    assert made["SchedulingConfigTemplate"]["scope"] == "Cluster"
    assert made["BindRequest"]["scope"] == "Namespaced"
    assert made["GPUPool"]["versions"][0]["subresources"] == {"status": {}}
    assert made["BindRequest"]["versions"][0]["subresources"] == {"status": {}}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (SchedulingConfigTemplate, SEED_CONFIG),
        (SchedulingConfigTemplate, SEED_CONFIG_OF_THE_APPENDIX),
        (GPUPool, SEED_POOL),
        (GPUPool, SEED_POOL_OF_THE_APPENDIX),
        (GPUPool, FULL_POOL),
    ],
)
def test_the_seeds_manifests_are_accepted(kind: type[CustomResource], text: str) -> None:
    manifest = yaml.safe_load(text)

    jsonschema.validate(manifest, served(kind))
    model = parse(kind, manifest)
    # Nothing that was written is unknown: a real API server would warn of it and drop it.
    assert model.manifest()["spec"] == manifest["spec"]


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (GPUPool, {"owner": "nobody"}),
        (GPUPool, {"qosConfig": {"defaultQoS": "best"}}),
        (GPUPool, {"capacityConfig": {"oversubscription": {"tflopsRatio": 0.5}}}),
        (GPUPool, {"isolation": "none"}),
        (GPUPool, {"enforcer": "MPS"}),
        (GPUPool, {"unhealthyTaintEffect": "None"}),
        (GPUPool, {"enforcer": "mps", "mps": {"defaultActiveThreadPercentage": 0}}),
        (GPUPool, {"enforcer": "mps", "mps": {"defaultActiveThreadPercentage": 101}}),
        (GPUPool, {"enforcer": "mps", "mps": {"defaultPinnedDeviceMemoryLimit": "8"}}),
        (GPUPool, {"enforcer": "mps", "mps": {"defaultPinnedDeviceMemoryLimit": "0Gi"}}),
        (GPUPool, {"enforcer": "timeslice", "timeSlice": "1ms"}),
        (SchedulingConfigTemplate, {"placement": {"mode": "Random"}}),
        (SchedulingConfigTemplate, {"placement": {"node": "fill"}}),
        (SchedulingConfigTemplate, {"placement": {"mode": "CompactFirst", "weights": {"cpu": -1}}}),
        (SchedulingConfigTemplate, {"placement": {"topology": "nvlink"}}),
        (BindRequest, {"selectedNode": "node-1"}),
    ],
)
def test_what_is_wrong_is_refused_by_schema_and_model(
    kind: type[CustomResource], spec: dict[str, Any]
) -> None:
    manifest = {"metadata": {"name": "x"}, "spec": spec}

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, served(kind))
    with pytest.raises(ValidationError):
        parse(kind, manifest)


@pytest.mark.parametrize(
    ("spec", "stored"),
    [
        ({"owner": "kube-scheduler", "allowedNamespaces": ["a"]}, False),
        ({"owner": "kube-scheduler", "allowedNamespaces": []}, True),
        ({"owner": "kube-scheduler"}, True),
        ({"owner": "dray", "allowedNamespaces": ["a"]}, True),
    ],
)
def test_who_does_not_read_allowed_namespaces_has_none(spec: dict[str, Any], stored: bool) -> None:
    found = rule_errors(spec, None, served(GPUPool)["properties"]["spec"], "spec")
    assert bool(found) is not stored
    if stored:
        assert parse(GPUPool, {"metadata": {"name": "x"}, "spec": spec})
    else:
        assert "allowedNamespaces needs owner dray" in str(found)
        with pytest.raises(ValidationError, match="allowedNamespaces needs owner dray"):
            parse(GPUPool, {"metadata": {"name": "x"}, "spec": spec})


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"mps": {}}, "it needs enforcer mps"),
        ({"enforcer": "env", "mps": {}}, "it needs enforcer mps"),
        ({"timeSlice": "Long"}, "it needs enforcer timeslice"),
        ({"enforcer": "mps", "timeSlice": "Long"}, "it needs enforcer timeslice"),
        ({"enforcer": "mps"}, ""),
        ({"enforcer": "mps", "mps": {}}, ""),
        ({"enforcer": "timeslice", "timeSlice": "Long"}, ""),
    ],
)
def test_parameters_of_an_enforcer_need_it(spec: dict[str, Any], error: str) -> None:
    found = rule_errors(spec, None, served(GPUPool)["properties"]["spec"], "spec")
    assert bool(found) is bool(error)
    assert error in str(found)
    if not error:
        assert parse(GPUPool, {"metadata": {"name": "x"}, "spec": spec})
        return
    with pytest.raises(ValidationError, match=error):
        parse(GPUPool, {"metadata": {"name": "x"}, "spec": spec})


def test_conversion_reads_the_fields_that_the_models_define() -> None:
    pool = pool_from(yaml.safe_load(FULL_POOL))

    assert pool.node_selector == {"accelerator": "h100"}
    assert (pool.dedicated, pool.default) == (True, True)
    assert pool.default_qos == "high"
    assert (pool.tflops_ratio, pool.vram_ratio) == ("1.5", "2")
    assert pool.allowed_namespaces == ("team-a",)
    assert pool.unhealthy_effect == "NoExecute"
    assert pool.enforcement == Enforcement("mps", mps_threads_percent=50, mps_memory="8Gi")
    policy = policy_from(yaml.safe_load(SEED_CONFIG))
    assert (policy.dra_enabled, policy.placement) == (True, "CompactFirst")


def test_the_device_class_is_the_drivers_and_guards_the_driver() -> None:
    manifest = yaml.safe_load((ROOT / "deploy/helm/dray/files/deviceclass.yaml").read_text())

    assert manifest["metadata"]["name"] == DEVICE_CLASS
    (selector,) = manifest["spec"]["selectors"]
    assert selector["cel"]["expression"] == f'device.driver == "{DRIVER}"'


def test_the_base_template_in_drays_namespace_is_the_user_guides() -> None:
    guide = ROOT / "examples/01-quick-start/02-resourceclaim-template.yaml"
    expected = yaml.safe_load(convert(guide.read_text()).text)
    expected["metadata"]["namespace"] = DRAY_NAMESPACE

    assert (
        yaml.safe_load((ROOT / "deploy/helm/dray/files/basetemplate.yaml").read_text()) == expected
    )


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (
            GPUPool,
            {
                "name": "my-gpu-pool",
                "GPUs": "1024",
                "Unhealthy": "3",
                "Free": "319123.75",
                "Free VRAM": "40960.5Gi",
                "Waiting": "120",
                "Ready": "True",
                "Age": "100d",
            },
        ),
        (
            BindRequest,
            {
                "name": "trainer-x2k4p",
                "Pool": "production",
                "Node": "gpu-node-1",
                "GPUs": "8",
                "Phase": "Succeeded",
                "Reason": "PodSucceeded",
                "Age": "100d",
            },
        ),
    ],
)
def test_default_columns_fit_a_terminal(kind: type[CustomResource], values: dict[str, str]) -> None:
    names = ["name", *(column.name for column in kind.COLUMNS if not column.wide)]

    widths = [max(len(name), len(values[name])) for name in names]

    # kubectl puts three spaces between two columns.
    assert sum(widths) + 3 * (len(widths) - 1) <= 80


def test_bind_requests_show_how_many_attempts_failed_and_no_internal_number() -> None:
    paths = {column.name: column.path for column in BindRequest.COLUMNS}

    assert paths["Failed"] == ".status.failedAttempts"
    assert ".spec.attempt" not in paths.values()


def test_kinds_have_short_names_of_their_own_and_a_category() -> None:
    found = [
        custom_resources.crd(kind)["spec"]["names"] for kind in CUSTOM_RESOURCES if kind.IS_OWN
    ]

    assert [names["shortNames"] for names in found] == [["gp"], ["sct"], ["br"]]
    assert all(names["categories"] == ["dray"] for names in found)
