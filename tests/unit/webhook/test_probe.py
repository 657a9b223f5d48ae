"""The dry runs that ask what a server keeps get past dray's own webhook, whatever the server."""

from typing import Any

import pytest

from dray.api.names import DRAY_NAMESPACE
from dray.kube.memory import MemoryKube
from dray.kube.ports import CLAIMS, NAMESPACES
from dray.kube.probe import probe
from dray_webhook.decisions.claims import mutate_claim, validate_claim


@pytest.mark.parametrize("device_taints", [True, False], ids=["taints", "no taints"])
async def test_what_the_probe_asks_for_is_nobodys_card(
    cluster: Any, request_of: Any, monkeypatch: pytest.MonkeyPatch, device_taints: bool
) -> None:
    cluster.server(version="v1.34.4", device_taints=device_taints)
    kube, asked = MemoryKube(), []
    create = MemoryKube.create

    async def noted(self: Any, resource: Any, obj: Any, *args: Any, **more: Any) -> Any:
        asked.extend([obj] if resource == CLAIMS else [])
        return await create(self, resource, obj, *args, **more)

    monkeypatch.setattr(MemoryKube, "create", noted)
    await kube.create(NAMESPACES, {"metadata": {"name": DRAY_NAMESPACE}})
    await probe(kube, DRAY_NAMESPACE, revision=1)

    assert len(asked) == 2
    for claim in asked:
        review = request_of(claim, kind={"group": CLAIMS.group, "kind": CLAIMS.kind})
        assert validate_claim(review, cluster.view).allowed
        assert mutate_claim(review).patch == ()
