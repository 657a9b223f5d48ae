"""Services that run for long keep no more than after their first hour."""

import os

import pytest

from benchmarks.day import run_day
from benchmarks.day_cluster import Pace
from dray.bus.memory import MemoryBus
from dray_node_agent.files.cdi_folder import CdiFolder
from dray_webhook.service.handler import AdmissionHandler

pytestmark = pytest.mark.timeout(300)

PACE = Pace(hour_s=80.0, life_s=4.0, settling_s=40.0, log_kept_s=4.0, trim_every_s=4.0)
"""Hours of two minutes."""
HOURS, PODS_PER_HOUR = 3, 72
OUTBOX = "dray_claim_controller.facts.outbox._REMEMBERED_ENDED"
SMALL = {
    OUTBOX: 8,
    "dray_claim_controller.cache.object_cache._REMEMBERED_GONE": 8,
    "dray_node_agent.kubelet.preparer.REMEMBERED_UNPREPARES": 8,
    "dray_allocator.state.kept_scores.KEPT": 8,
    "dray_allocator.nodes.equivalence._LEAST_OLD_KINDS": 8,
    "dray_allocator.state.facts.GONE_KEPT_S": 30.0,
    "dray.messages.facts.TOMBSTONE_S": 110,
}
"""What is remembered of the past reaches its limit in the first hour."""
MOST_PER_POD = {"objects": 0.5, "stream bytes": 200.0, "file descriptors": 0.0}
"""How much a figure may grow per pod after the first hour, by the end of its name. Bytes of
objects scatter with the sizes of hash tables."""


@pytest.fixture(autouse=True)
def _small_memories(monkeypatch):
    for memory, most in SMALL.items():
        monkeypatch.setattr(memory, most)


def grown(folder):
    """The figures that grew with the pods."""
    day, bound = run_day(HOURS, HOURS * PODS_PER_HOUR, folder, pace=PACE)
    assert bound == HOURS * PODS_PER_HOUR
    first, last = day.rows[0], day.rows[-1]
    pods = last["pods"] - first["pods"]
    return {
        name
        for end, most in MOST_PER_POD.items()
        for name in first
        if name.endswith(end) and last[name] - first[name] > most * pods
    }


def test_nothing_grows_for_ever(tmp_path):
    assert grown(tmp_path) == set()


def test_what_grows_is_noticed(tmp_path, monkeypatch):
    """A memory without a limit, requests that are kept, logs that are not trimmed, files that stay
    open."""
    opened, write, mutate_pod = [], CdiFolder.write, AdmissionHandler.mutate_pod

    async def keep_request(self, request, *, timeout_s):
        self.__dict__.setdefault("kept", []).append(request)
        return await mutate_pod(self, request, timeout_s=timeout_s)

    async def purge_nothing(self, stream, below):
        """A trim without an effect."""

    def keep_open(self, claim_uid, spec):
        write(self, claim_uid, spec)
        opened.append(os.open(self.path(claim_uid), os.O_RDONLY))

    monkeypatch.setattr(OUTBOX, 1_000_000)
    monkeypatch.setattr(AdmissionHandler, "mutate_pod", keep_request)
    monkeypatch.setattr(MemoryBus, "purge", purge_nothing)
    monkeypatch.setattr(CdiFolder, "write", keep_open)
    try:
        found = grown(tmp_path)
    finally:
        for descriptor in opened:
            os.close(descriptor)
    assert {"cc-1 objects", "webhook-1 objects", "stream bytes", "file descriptors"} <= found
