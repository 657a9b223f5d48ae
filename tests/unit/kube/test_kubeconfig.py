"""A kubeconfig that is none."""

from pathlib import Path

import pytest

from dray.api.errors import InvalidInputError
from dray.kube.api_transport import configuration


@pytest.mark.parametrize(
    "held",
    [
        b"",
        b"[]",
        b"just text",
        b"a: b",
        b"a:\n\t- b",
        b"kind: Config\nclusters: 3",
        b"\xff\xfe\xff",
    ],
    ids=["nothing", "list", "text", "other", "not YAML", "wrong type", "not UTF-8"],
)
async def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, held: bytes) -> None:
    file = tmp_path / "mine.kubeconfig"
    file.write_bytes(held)

    with pytest.raises(
        InvalidInputError, match=r"mine\.kubeconfig: expected a kubeconfig: .*KUBECONFIG$"
    ):
        await configuration(str(file))
