"""The command line on an installed cluster: nothing but a kubeconfig, and the operators' roles."""

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from tests.packaging.helm.installation import (
    INSTALLED,
    NAMESPACE,
    SIMULATED,
    Cluster,
    CommandError,
    cluster,
    gpu_pod,
    run,
)

pytestmark = INSTALLED


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed() -> AsyncIterator[Cluster]:
    """An installation with a pod that runs and one that waits."""
    async with cluster("command-line", nodes=1) as made:
        await made.install(*SIMULATED)
        await made.ready()
        await made.apply(gpu_pod("runs"), gpu_pod("waits", tflops="1000000"))
        await made.running("runs")
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kubeconfig of a user with the operators' roles, whose token a plugin gives."""
    folder = tmp_path_factory.mktemp("operator")
    await installed.kubectl("create", "serviceaccount", "someone", "-n", "default")
    for kind, namespace in (("clusterrole", ()), ("role", ("-n", NAMESPACE))):
        binding = "clusterrolebinding" if kind == "clusterrole" else "rolebinding"
        await installed.kubectl(
            *("create", binding, "someone", *namespace, f"--{kind}=dray-operator"),
            "--serviceaccount=default:someone",
        )
    token = (await installed.kubectl("create", "token", "someone", "-n", "default")).strip()
    return with_plugin(installed.kubeconfig, token, folder)


def with_plugin(kubeconfig: str, token: str, folder: Path) -> Path:
    """A kubeconfig of the same cluster whose user's token comes from an exec plugin."""
    plugin = folder / "plugin"
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token},
    }
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    plugin.chmod(0o700)
    content = yaml.safe_load(Path(kubeconfig).read_text())
    (user,) = content["users"]
    user["user"] = {
        "exec": {
            "apiVersion": credential["apiVersion"],
            "command": str(plugin),
            "interactiveMode": "Never",
        }
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


async def dray(kubeconfig: Path, *arguments: str) -> str:
    """What the command line prints. Raises CommandError."""
    return await run(
        [sys.executable, "-m", "dray_cli", *arguments, "--kubeconfig", str(kubeconfig)]
    )


async def test_the_doctor_sees_the_bus_and_finds_nothing_broken(
    installed: Cluster, operator: Path
) -> None:
    printed = json.loads(await dray(operator, "doctor", "-o", "json"))

    assert printed["healthy"]
    found = {one["subject"]: one["grade"] for one in printed["findings"]}
    assert found["a claim-controller leads"] == "ok"
    assert found["decision log of default"] == "ok"


async def test_scores_and_traces_come_from_the_bus(installed: Cluster, operator: Path) -> None:
    explained = json.loads(await dray(operator, "explain", "pod/runs", "--scores", "-o", "json"))
    traced = json.loads(await dray(operator, "trace", "pod/runs", "-o", "json"))

    assert explained["scores"]["nodes"]
    assert traced["source"] == "messages and objects"


async def test_what_needs_no_bus_works_too(installed: Cluster, operator: Path) -> None:
    assert "not enough free virtual_tflops" in await dray(operator, "explain", "pod/waits")
    assert "default/runs" in await dray(operator, "gpus")
    assert "default/runs" in await dray(operator, "top", "--once")


async def test_a_recording_is_made_and_replayed(
    installed: Cluster, operator: Path, tmp_path: Path
) -> None:
    file = tmp_path / "x.jsonl"
    printed = await dray(operator, "record", str(file), "--for", "3s")
    replayed = await run([sys.executable, "-m", "dray_cli", "replay", str(file)])

    assert "records" in printed
    assert "equal" in replayed or "same" in replayed


async def test_who_has_no_role_is_refused_with_what_to_ask_for(
    installed: Cluster, operator: Path
) -> None:
    await installed.kubectl("delete", "rolebinding", "someone", "-n", NAMESPACE)

    with pytest.raises(CommandError, match=r"may not read the Secret dray-operator in dray-system"):
        await dray(operator, "record", os.devnull, "--for", "1s")
