"""What deploy/compose writes before its containers start."""

import yaml

from dray_sandbox.compose.files import prepare


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
