"""Verbs that people wait for import nothing slow; each runs in a process of its own."""

import subprocess
import sys

import pytest

HEAVY = (
    "aiohttp",
    "cryptography",
    "dray_allocator",
    "dray_claim_controller",
    "grpc",
    "nats",
    "numpy",
    "opentelemetry",
    "prometheus_client",
    "pydantic",
    "rich",
    "ruamel",
    "structlog",
    "yaml",
)
READERS = (*(name for name in HEAVY if name not in ("aiohttp", "yaml")), "dray_sandbox.layout")
"""Also of verbs that only read Kubernetes."""


def imported(statement: str, modules: tuple[str, ...]) -> list[str]:
    """Which of the modules are in memory after a statement."""
    code = f"import sys\n{statement}\nprint(*(one for one in {modules} if one in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[-1].split()


def test_help_imports_nothing_slow() -> None:
    shown = "from dray_cli.__main__ import cli; cli.main(['--help'], standalone_mode=False)"
    assert imported(shown, HEAVY) == []


@pytest.mark.parametrize("module", ["explain", "gpus", "top"])
def test_verbs_that_read_kubernetes_import_no_service_and_no_bus(module: str) -> None:
    assert imported(f"import dray.kube.api, dray_cli.{module}", READERS) == []
