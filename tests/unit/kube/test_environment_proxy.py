"""The proxy to an API server is looked up once, by the rules of the environment."""

import pytest

from dray.kube.api_transport import environment_proxy

SERVER = "https://api.example.org:6443"


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def test_there_is_none_unless_the_environment_names_one() -> None:
    assert environment_proxy(SERVER) is None


def test_it_is_that_of_the_servers_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert environment_proxy(SERVER) == "http://proxy:3128"
    assert environment_proxy("http://api.example.org") is None


@pytest.mark.parametrize("excepted", ["api.example.org", ".example.org", "*"])
def test_excepted_servers_are_asked_directly(
    monkeypatch: pytest.MonkeyPatch, excepted: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", excepted)
    assert environment_proxy(SERVER) is None
