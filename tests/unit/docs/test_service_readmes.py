"""The README of a service names what is in the service."""

from pathlib import Path

import pytest

from dray_webhook.decisions import dispatch

SERVICES = Path(__file__).parents[3] / "services"
PACKAGES = sorted(path.parent for path in SERVICES.glob("*/*/__init__.py"))


def text_of(package: Path) -> str:
    return (package.parent / "README.md").read_text("utf-8")


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_readme_names_every_folder_and_module_at_the_top(package: Path) -> None:
    found = [one for one in package.iterdir() if one.is_dir() or one.suffix == ".py"]
    names = {one.stem for one in found if not one.name.startswith("__")}
    assert len(names) > 3
    assert sorted(name for name in names if name not in text_of(package)) == []


def test_the_webhook_s_readme_names_every_path() -> None:
    text = text_of(SERVICES / "webhook" / "dray_webhook")
    assert [path for path in dispatch.PATHS if f"`/{path}`" not in text] == []
