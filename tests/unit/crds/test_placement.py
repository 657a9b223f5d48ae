"""What a SchedulingConfigTemplate may say about placement, to the server and to the model."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from dray_sandbox.apiserver import structural
from tools.generate.resources import SchedulingConfigTemplate

CRD = Path(__file__).parents[3] / "deploy/helm/dray/crds/schedulingconfigtemplates.yaml"


def refusals(placement: dict[str, Any]) -> list[str]:
    """What an API server says."""
    (version,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    schema, value = version["schema"]["openAPIV3Schema"], {"spec": {"placement": placement}}
    found = [*structural.validate(value, schema), *structural.rule_errors(value, None, schema)]
    return [str(one) for one in found]


@pytest.mark.parametrize(
    ("placement", "because"),
    [
        ({"mode": "FragmentationAware", "node": "spread"}, "chooses node and card together"),
        ({"mode": "FragmentationAware", "gpu": "binpack"}, "chooses node and card together"),
        ({"mode": "FragmentationAware", "weights": {"cpu": 1}}, "weighs by itself"),
        ({"mode": "KubernetesCompatible", "node": "spread"}, "which scores nothing"),
        ({"mode": "KubernetesCompatible", "topology": "soft"}, "which scores nothing"),
        ({"mode": "KubernetesCompatible", "weights": {"cpu": 1}}, "which scores nothing"),
        ({"weights": {"cpu": 1}}, "also name a mode, node or gpu"),
    ],
)
def test_what_contradicts_itself_is_refused(placement: dict[str, Any], because: str) -> None:
    [refusal] = refusals(placement)
    assert because in refusal
    with pytest.raises(ValidationError, match=because):
        SchedulingConfigTemplate.model_validate({"spec": {"placement": placement}})


@pytest.mark.parametrize(
    "placement",
    [
        {},
        {"mode": "FragmentationAware", "topology": "hard"},
        {"mode": "LowLoadFirst", "node": "binpack"},
        {"mode": "KubernetesCompatible"},
        {"node": "spread", "weights": {"cpu": 1, "vram": 1000, "gpu.example.com": 0}},
        {"mode": "CompactFirst", "weights": {"memory": 3}},
    ],
)
def test_everything_else_is_taken_as_it_was_written(placement: dict[str, Any]) -> None:
    assert refusals(placement) == []
    model = SchedulingConfigTemplate.model_validate({"spec": {"placement": placement}})
    assert model.manifest()["spec"]["placement"] == placement
