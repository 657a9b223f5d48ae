"""The webhook's handler: from the bytes of an AdmissionReview to its answer's bytes; no network."""

import asyncio
import itertools
import json
import time
from pathlib import Path

import yaml

from dray.api.pods import Policy, Pool
from dray.bus.backlog import Backlog
from dray.bus.memory import MemoryBus
from dray.messages.facts import (
    ClusterObserved,
    PolicyObserved,
    PoolObserved,
    Synced,
    TemplateObserved,
)
from dray.user_guide_form.documents import convert
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import read_review, write_review
from dray_webhook.service.facts_cache import FactsCache
from dray_webhook.service.handler import AdmissionHandler

EXAMPLE = Path(__file__).parents[1] / "examples" / "01-quick-start"


def measure(samples: int) -> list[float]:
    """Milliseconds per call, for the pods of the quick-start example in turn."""
    return asyncio.run(_measure(samples))


async def _measure(samples: int) -> list[float]:
    bus = MemoryBus()
    webhook = AdmissionHandler(
        _cache(bus),
        Backlog(bus, capacity=samples + 10, what="pod.requested"),
        Installation("dray-system"),
        source="/bench",
    )
    bodies = itertools.cycle([_review(pod) for pod in _pods()])
    taken: list[float] = []
    for body in itertools.islice(bodies, samples + 20):
        began = time.perf_counter()
        request = read_review(body)
        answer = await webhook.mutate_pod(request, timeout_s=10.0)
        json.dumps(write_review(request.uid, answer))
        taken.append((time.perf_counter() - began) * 1000)
    return taken[20:]


def _cache(bus: MemoryBus) -> FactsCache:
    cache = FactsCache(bus)
    template = next(
        obj
        for obj in convert((EXAMPLE / "02-resourceclaim-template.yaml").read_text()).objects
        if obj["kind"] == "ResourceClaimTemplate"
    )
    facts = [
        ClusterObserved(revision=1, version="v1.36.3"),
        PolicyObserved(revision=1, policy=Policy("config", "u", dra_enabled=True)),
        *(
            PoolObserved(revision=1, pool=Pool(name, "u", template="config", dedicated=True))
            for name in ("default", "my-gpu-pool")
        ),
        TemplateObserved(
            revision=1,
            namespace="default",
            name=template["metadata"]["name"],
            labels=template["metadata"]["labels"],
            spec=template["spec"],
        ),
        Synced(revision=1, instance="bench"),
    ]
    for fact in facts:
        cache.view.apply(fact)
    return cache


def _pods() -> list[dict[str, object]]:
    return [
        pod for pod in yaml.safe_load_all((EXAMPLE / "04-pods.yaml").read_text()) if pod is not None
    ]


def _review(pod: dict[str, object]) -> bytes:
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "6f0f2d0e-0000-0000-0000-000000000000",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": "default",
            "operation": "CREATE",
            "object": pod,
        },
    }
    return json.dumps(review).encode()
