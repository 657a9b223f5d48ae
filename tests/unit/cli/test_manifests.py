"""The example's files become objects that the API server accepts, in the guide's order."""

from pathlib import Path

import pytest

from dray.api.errors import InvalidInputError
from dray_cli.demo.manifests import read_manifests

EXAMPLE = Path(__file__).parents[3] / "examples" / "01-quick-start"


def test_every_file_is_read_in_the_order_of_its_name() -> None:
    files = [manifest.file for manifest in read_manifests(EXAMPLE)]

    assert files == sorted(files)
    assert set(files) == {path.name for path in EXAMPLE.glob("*.yaml")}


def test_manifests_in_the_guides_own_form_are_converted() -> None:
    converted = [m for m in read_manifests(EXAMPLE) if m.converted]

    assert {m.object["apiVersion"] for m in converted} == {"resource.k8s.io/v1"}
    assert {m.namespace for m in converted} == {"default", "appendix"}


def test_a_kind_that_the_demo_does_not_apply_is_refused_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n")

    with pytest.raises(InvalidInputError, match=r"x\.yaml.*'Secret'"):
        list(read_manifests(tmp_path))
