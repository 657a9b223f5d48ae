"""The costs of a run: CPU time of programs from /proc, writes from kube-apiserver's counters."""

import json
import os
import re
import ssl
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

CLIENT = "this benchmark"
"""The benchmark's own process: creates the pods and watches for their binding."""
_TICKS = os.sysconf("SC_CLK_TCK")
_WRITES = ("POST", "PUT", "PATCH", "DELETE", "APPLY")
_NOT_COUNTED = ("leases", "subjectaccessreviews", "tokenreviews")
"""Lease renewals depend on time, not on pods; reviews write nothing."""
_REQUEST = re.compile(
    r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)$", re.MULTILINE
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters at one moment. Only differences of two readings have a meaning."""

    at_s: float
    cpu_s: Mapping[str, float]
    """Seconds of CPU time by program."""
    machine_s: float
    """Seconds of CPU time that all programs on this machine used."""
    writes: Counter[str] = field(default_factory=Counter)
    """Requests by ``verb resource/subresource``; for refused ones, the status code follows."""


class Meter:
    """Reads the counters of one control plane and of dray's programs."""

    def __init__(self, kubeconfig: Path, pids: Mapping[str, int]) -> None:
        content = json.loads(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        self._url = f"{cluster['server']}/metrics"
        self._headers = {"Authorization": f"Bearer {user['token']}"}
        self._context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._pids = {**pids, CLIENT: os.getpid()}

    async def read(self) -> Reading:
        """All counters now."""
        return Reading(
            time.monotonic(),
            {name: process_cpu_s(pid) for name, pid in self._pids.items()},
            machine_cpu_s(),
            writes_in(await self._metrics()),
        )

    async def _metrics(self) -> str:
        async with (
            aiohttp.ClientSession(headers=self._headers) as session,
            session.get(self._url, ssl=self._context) as response,
        ):
            response.raise_for_status()
            return await response.text()


def process_cpu_s(pid: int) -> float:
    """User and system time of a process with all its threads, in seconds."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    # The name in parentheses may contain anything.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def machine_cpu_s() -> float:
    """Time that the machine's cores were not idle, in seconds."""
    cpu = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, cpu)
    return (user + nice + system + irq + softirq) / _TICKS


def writes_in(metrics: str) -> Counter[str]:
    """Requests that change objects, by verb and resource."""
    found: Counter[str] = Counter()
    for match in _REQUEST.finditer(metrics):
        labels = dict(_LABEL.findall(match["labels"]))
        counts = labels["verb"] in _WRITES and not labels.get("dry_run")
        if not counts or labels["resource"] in _NOT_COUNTED:
            continue
        where = "/".join(filter(None, (labels["resource"], labels["subresource"])))
        code = "" if labels["code"].startswith("2") else f" → {labels['code']}"
        found[f"{labels['verb'].lower()} {where}{code}"] += int(float(match["count"]))
    return found
