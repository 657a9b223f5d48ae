"""What deploy/compose is made of, and what it writes before its containers start."""

import re

import yaml

from dray_sandbox.compose.files import prepare
from tools.version import ROOT, version


def server_of(kubeconfig) -> str:
    content = yaml.safe_load(kubeconfig.read_text())
    return content["clusters"][0]["cluster"]["server"]


def test_people_reach_the_api_server_by_its_published_port_and_containers_by_its_own(tmp_path):
    state, people = tmp_path / "state", tmp_path / "people"
    people.mkdir()
    made = prepare(state, people, ("sim-1",), api="api:6443", nats="nats:4222", published=7443)

    assert made
    assert server_of(people / "kubeconfig") == "https://127.0.0.1:7443"
    kubeconfigs = sorted((state / "access").glob("*.kubeconfig"))
    assert kubeconfigs
    assert {server_of(one) for one in kubeconfigs} == {"https://api:6443"}


def test_what_was_written_stays(tmp_path):
    reached = {"api": "api:6443", "nats": "nats:4222", "published": 6443}
    prepare(tmp_path, tmp_path, (), **reached)
    before = (tmp_path / "kubeconfig").read_bytes()

    assert not prepare(tmp_path, tmp_path, (), **reached)
    assert (tmp_path / "kubeconfig").read_bytes() == before


def test_compose_names_the_images_of_this_release_and_the_charts_nats():
    text = (ROOT / "deploy/compose/compose.yaml").read_text("utf-8")
    values = yaml.safe_load((ROOT / "deploy/helm/dray/values.yaml").read_text("utf-8"))

    assert set(re.findall(r"\$\{DRAY_VERSION:-([^}]*)\}", text)) == {version()}
    image = values["nats"]["image"]
    nats = yaml.safe_load(text)["services"]["nats"]["image"]
    assert nats.endswith(f"/{image['repository']}:{image['tag']}")
