"""docs/rbac.md names every right that the roles grant, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from dray_sandbox.chart import chart_directory, service_roles

PAGE = Path(__file__).parents[3] / "docs" / "rbac.md"
ROW = re.compile(r"^\| (?:`([\w.-]+)` )?\| `([\w/]+)` \| ([a-z, ]+) \| ", re.MULTILINE)


def granted() -> Iterator[tuple[str, str, str, str]]:
    """Role, group, resource and verb."""
    text = (chart_directory() / "files" / "mps.yaml").read_text("utf-8")
    of_mps = [one for one in yaml.safe_load_all(text) if one["kind"] == "Role"]
    for role in [*service_roles(), *of_mps]:
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        yield role["metadata"]["name"], group, resource, verb


def reported() -> Iterator[tuple[str, str, str, str]]:
    """The same, as the page has it."""
    page = PAGE.read_text("utf-8")
    for service in ("claim-controller", "node-agent"):
        section = page.split(f"## {service}\n")[1].split("\n## ")[0]
        for group, resource, verbs in ROW.findall(section):
            for verb in verbs.split(", "):
                yield f"dray-{service}", group, resource, verb


def test_the_page_and_the_roles_are_the_same() -> None:
    assert sorted(reported()) == sorted(set(granted()))
