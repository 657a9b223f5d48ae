"""Simulated nodes, and the objects that a stack installs."""

from pathlib import Path

import pytest

from dray.api.errors import InvalidInputError
from dray.api.names import DRAY_NAMESPACE, POOL_LABEL
from dray_sandbox.access import CLAIM_CONTROLLER, GROUPS, make_credentials
from dray_sandbox.chart import SERVICES, cluster_roles, service_roles
from dray_sandbox.kubelet.__main__ import parse
from dray_sandbox.layout import simulated_nodes
from dray_sandbox.paths import FOLDER_VARIABLE, checkout, stack_directory
from dray_sandbox.services import renew_every_s


def test_models_and_pools_are_dealt_out_in_turn() -> None:
    nodes = simulated_nodes(3, models=("A100", "H100"), pools=("p", "q", "r"))
    assert [(node.name, node.model, node.labels[POOL_LABEL]) for node in nodes] == [
        ("sim-1", "A100", "p"),
        ("sim-2", "H100", "q"),
        ("sim-3", "A100", "r"),
    ]


def test_labels_are_for_all_nodes_or_for_one_and_win_over_the_pools() -> None:
    labels = ("zone=x", f"sim-2:{POOL_LABEL}=other")
    first, second = simulated_nodes(2, pools=("p",), labels=labels)
    assert first.labels == {POOL_LABEL: "p", "zone": "x"}
    assert second.labels == {POOL_LABEL: "other", "zone": "x"}


def test_nodes_need_no_pool() -> None:
    assert simulated_nodes(1, pools=())[0].labels == {}


@pytest.mark.parametrize("label", ["zone", "=x", "sim-9:zone=x"])
def test_wrong_labels_are_refused_by_name(label: str) -> None:
    with pytest.raises(InvalidInputError, match="node label"):
        simulated_nodes(1, labels=(label,))


@pytest.mark.parametrize("name", ["", "..", "../..", "a/b", "/etc", ".git", "-x", "x-", "A b"])
def test_no_name_leads_out_of_the_folder_that_a_start_wipes(name: str) -> None:
    with pytest.raises(InvalidInputError, match="name of a stack"):
        stack_directory(name)


def test_a_stack_lives_in_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE)
    assert stack_directory("e2e-1").parent == checkout() / ".cache" / "dray"


def test_two_sessions_of_tests_have_stacks_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert stack_directory("e2e-1").parent.parent == checkout() / ".cache" / "dray" / "tests"
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert stack_directory("e2e-1") == tmp_path / "e2e-1"


def test_the_claim_controller_alone_may_change_allocations() -> None:
    may = {
        role["metadata"]["name"]
        for role in cluster_roles()
        if any("resourceclaims/binding" in rule["resources"] for rule in role.get("rules", ()))
    }
    assert may == {CLAIM_CONTROLLER}


def test_no_role_uses_wildcards_and_every_role_is_bound_to_its_user() -> None:
    for role in service_roles():
        for rule in role["rules"]:
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
    roles = {(o["kind"], o["metadata"]["name"]) for o in cluster_roles() if "rules" in o}
    bound = {
        (o["roleRef"]["kind"], o["subjects"][0]["name"]) for o in cluster_roles() if "roleRef" in o
    }
    assert bound == roles
    assert {name for _, name in roles} <= GROUPS.keys()
    assert {role["metadata"]["name"] for role in service_roles()} == set(SERVICES)


def test_leases_are_written_in_drays_own_namespace_alone() -> None:
    (role,) = (role for role in service_roles() if role["kind"] == "Role")
    assert role["metadata"]["namespace"] == DRAY_NAMESPACE
    leases = [
        one["metadata"]["name"]
        for one in service_roles()
        if any("leases" in rule["resources"] for rule in one["rules"])
    ]
    assert leases == [role["metadata"]["name"]]


def test_every_user_has_a_token_of_its_own_that_only_the_owner_reads(tmp_path: Path) -> None:
    credentials = make_credentials(tmp_path)
    assert len(set(credentials.tokens.values())) == len(GROUPS)
    assert credentials.token_file.stat().st_mode & 0o077 == 0
    assert credentials.server.key.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 10.0), (500, 10.0), (2000, 40.0)])
def test_many_nodes_renew_their_leases_less_often(nodes: int, seconds: float) -> None:
    assert renew_every_s(nodes) == seconds
    options = parse(["--node=n:p:r:c", f"--renew-every-s={renew_every_s(nodes):g}"])
    assert options.renew_every_s == seconds


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "x"])
def test_a_lease_is_not_renewed_without_end_or_never(text: str) -> None:
    with pytest.raises(SystemExit):
        parse(["--node=n:p:r:c", f"--renew-every-s={text}"])
