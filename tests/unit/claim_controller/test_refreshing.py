"""Reading one object again from the server."""

import pytest

from dray.kube.memory import MemoryKube
from dray.kube.memory_refusals import InjectedRefusal
from dray.kube.ports import CLAIMS, Changed, KubeUnavailableError, NotServedError
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.informers import Informers


async def test_a_claim_stays_known_where_the_server_does_not_serve_claims() -> None:
    kube, cache = MemoryKube(), ObjectCache()
    informers = Informers(kube, cache)
    made = await kube.create(CLAIMS, {"metadata": {"name": "held"}, "spec": {}}, "ns")
    cache.apply(CLAIMS, Changed(made))
    uid = made["metadata"]["uid"]
    end = kube.refuse(
        InjectedRefusal(NotServedError("404 page not found"), "get", CLAIMS, name="held")
    )
    with pytest.raises(KubeUnavailableError, match="404 page not found"):
        await informers.refresh_claim(uid, "ns", "held")
    assert uid in cache.claims

    end()
    await kube.delete(CLAIMS, "held", "ns")
    await informers.refresh_claim(uid, "ns", "held")
    assert uid not in cache.claims
