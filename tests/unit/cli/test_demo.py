"""`dray demo` on real kubelets: where it can't run, it says why."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from dray_cli.demo.verb import demo
from dray_sandbox.paths import FOLDER_VARIABLE


def test_real_kubelets_are_not_combined_with_the_sandbox() -> None:
    done = CliRunner().invoke(demo, ["--kubelet", "real", "--control-plane", "sandbox"])

    assert done.exit_code == 2
    assert "--kubelet real needs --control-plane real" in done.output


def test_real_kubelets_without_root_are_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    done = CliRunner().invoke(demo, ["--kubelet", "real"])

    assert done.exit_code == 1
    assert "root" in done.output.splitlines()[-1]
