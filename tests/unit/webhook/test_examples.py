"""The quick start's files, as users apply them, through convert and admission."""

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dray.api.names import BASE_TEMPLATE
from dray.cel.check.static_check import check_selector
from dray.cel.syntax.parser import parse
from dray.kube.convert import policy_from, pool_from
from dray.messages.facts import (
    ClusterObserved,
    PolicyObserved,
    PoolObserved,
    Synced,
    TemplateObserved,
)
from dray.user_guide_form.documents import convert
from dray_cli.__main__ import cli
from dray_webhook.decisions.view import View

P = "tensor-fusion.ai/"
ROOT = Path(__file__).parents[3] / "examples"
GUIDE = ROOT / "seed" / "001-user-guide.txt"
FILES = sorted((ROOT / "01-quick-start").glob("*.yaml"))


@pytest.fixture
def applied(cluster):
    """The cluster after all files but the pods, and the pods in order."""
    cluster.view = View()
    cluster.view.apply(ClusterObserved(revision=1, version="v1.36.3"))
    cluster.view.apply(Synced(revision=1, instance="a"))
    pods = []
    for obj in (obj for file in FILES for obj in convert(file.read_text()).objects):
        metadata = obj["metadata"]
        match obj["kind"]:
            case "SchedulingConfigTemplate":
                cluster.view.apply(PolicyObserved(revision=1, policy=policy_from(obj)))
            case "GPUPool":
                cluster.view.apply(PoolObserved(revision=1, pool=pool_from(obj)))
            case "ResourceClaimTemplate":
                cluster.view.apply(
                    TemplateObserved(
                        revision=1,
                        namespace=metadata.get("namespace", "default"),
                        name=metadata["name"],
                        labels=dict(metadata["labels"]),
                        spec=obj["spec"],
                    )
                )
            case "Pod":
                pods.append(json.loads(json.dumps(obj)))
            case kind:
                assert kind == "Namespace"
    return cluster, pods


def test_every_pod_is_admitted_without_a_word(applied, patched):
    cluster, pods = applied
    placed = {}

    for obj in pods:
        namespace = obj["metadata"].get("namespace", "default")
        answer = cluster.admit(obj, namespace=namespace)
        assert answer.warnings == ()
        admitted = patched(obj, answer)
        shape = json.loads(admitted["metadata"]["annotations"][P + "shape"])
        (request,) = shape["spec"]["devices"]["requests"]
        for selector in request["exactly"]["selectors"]:
            check_selector(parse(selector["cel"]["expression"]), selector["cel"]["expression"])
        placed[f"{namespace}/{obj['metadata']['name']}"] = (
            admitted["metadata"]["annotations"][P + "gpupool"],
            request["exactly"]["count"],
            admitted["spec"]["schedulerName"],
            answer.requested.understood["base"],
        )

    dray, default = "tensor-fusion-scheduler", "default-scheduler"
    assert placed == {
        "default/my-gpu-workload": ("default", 1, default, f"default/{BASE_TEMPLATE}"),
        "default/my-workload": ("my-gpu-pool", 2, dray, f"default/{BASE_TEMPLATE}"),
        "appendix/my-workload": ("default", 1, default, f"appendix/{BASE_TEMPLATE}"),
        "appendix/multi-gpu-workload": (
            "production-pool",
            4,
            default,
            f"appendix/{BASE_TEMPLATE}",
        ),
        "default/needs-every-card": ("my-gpu-pool", 8, dray, f"default/{BASE_TEMPLATE}"),
    }


def test_there_is_one_default_pool_and_one_dedicated_pool(applied):
    cluster, _ = applied
    pools = cluster.view.pools.values()

    assert [pool.name for pool in pools if pool.default] == ["default"]
    assert [pool.name for pool in pools if pool.dedicated] == ["my-gpu-pool"]
    assert cluster.view.pools["my-gpu-pool"].default_qos == "high"


def _objects(text):
    return [obj for obj in yaml.safe_load_all(text) if obj is not None]


def test_the_guides_objects_stand_as_they_are_written_there():
    """But for the appendix's namespace, one pool's name, and the fields marked "demo"."""
    written = {
        (file.name[:2], obj["kind"], obj["metadata"]["name"]): obj
        for file in FILES
        for obj in _objects(file.read_text())
    }
    blocks = re.findall(r"^```yaml\n(.*?)^```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    guide = {
        ("01", 1): {},  # §3.1
        ("02", 2): {},  # §3.2
        ("03", 3): {"dedicated": True, "qosConfig": {"defaultQoS": "high"}},  # §3.3
        ("04", 0): {},  # §1.1
        ("04", 4): {},  # §3.4
        ("05", -2): {"default": True},  # appendix, example 1
        ("05", -1): {},  # appendix, example 2
    }
    for (number, index), added in guide.items():
        for expected in _objects(blocks[index]):
            if number == "05":
                _renamed(expected)
            if expected["kind"] == "GPUPool":
                expected["spec"].update(added)
            key = (number, expected["kind"], expected["metadata"]["name"])

            assert written[key] == expected


def _renamed(obj):
    metadata = obj["metadata"]
    if obj["kind"] in ("Pod", "ResourceClaimTemplate"):
        metadata["namespace"] = "appendix"
    if metadata["name"] == "default-pool":
        metadata["name"] = "default"
    if metadata.get("annotations", {}).get(P + "gpupool") == "default-pool":
        metadata["annotations"][P + "gpupool"] = "default"


def test_the_commands_that_are_shown_convert_their_files(monkeypatch):
    shown = [ROOT / "01-quick-start" / "README.md", *FILES]
    commands = [
        (path.parent if path.suffix == ".md" else ROOT.parent, arguments.split())
        for path in shown
        for arguments in re.findall(r"^(?:#   )?dray (convert .*) \|", path.read_text(), re.M)
    ]
    assert len(commands) == 4

    for folder, arguments in commands:
        monkeypatch.chdir(folder)
        ended = CliRunner().invoke(cli, arguments)
        assert ended.exit_code == 0, ended.output
        assert "resource.k8s.io/v1\n" in ended.output
