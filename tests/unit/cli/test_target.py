"""Which cluster a verb talks to."""

import os

import pytest

from dray.api.errors import InvalidInputError
from dray_cli.target import kubeconfig_of


def test_a_kubeconfig_of_the_environment_that_is_gone_is_named(tmp_path, monkeypatch):
    gone = str(tmp_path / "gone")
    monkeypatch.setenv("KUBECONFIG", gone)

    with pytest.raises(InvalidInputError, match=r"gone', which does not exist.*dray up"):
        kubeconfig_of(None)


def test_one_of_several_that_exists_is_enough(tmp_path, monkeypatch):
    there = tmp_path / "there"
    there.touch()
    both = os.pathsep.join((str(tmp_path / "gone"), str(there)))
    monkeypatch.setenv("KUBECONFIG", both)

    assert kubeconfig_of(None) == both


def test_the_flag_goes_first(monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/gone")

    assert kubeconfig_of("mine") == "mine"
