"""Runs every list of pods with every policy and seed, in one process or several."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Final

from dray_cli.simulate.dray_policy import MODES, DrayPolicy
from dray_cli.simulate.fgd import Fgd
from dray_cli.simulate.placement_rules import RULES, ByRule
from dray_cli.simulate.protocol import PlacementOutcome, PlacementPolicy, run, workload
from dray_cli.simulate.trace import ClusterTrace, read_trace

POLICIES: Final = (*RULES, "fgd", *MODES)
DEFAULT: Final = next(iter(MODES))


@dataclass(frozen=True, slots=True)
class Job:
    """One run. Equal jobs have equal outcomes, on any machine."""

    nodes: Path
    pods: Path
    policy: str
    ties: str
    seed: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean and standard deviation over the seeds; with one seed there is no deviation."""

    mean: float
    deviation: float | None


def jobs(
    nodes: Path, pods: Sequence[Path], policies: Sequence[str], seeds: Sequence[int], ties: str
) -> list[Job]:
    """All runs, in the order of the report."""
    return [
        Job(nodes, one, policy, ties, seed) for one in pods for policy in policies for seed in seeds
    ]


def outcomes(
    todo: Sequence[Job], processes: int, tell: Callable[[Job, float], None]
) -> Iterator[tuple[Job, PlacementOutcome]]:
    """The result of each run, when the run ends. ``tell``: called with the share of the run's pods
    that has arrived, if there is one process."""
    if processes == 1:
        traces: dict[Path, ClusterTrace] = {}
        for job in todo:
            if job.pods not in traces:
                traces = {job.pods: read_trace(job.nodes, job.pods)}
            yield job, _outcome(traces[job.pods], job, partial(tell, job))
        return
    for job in todo:  # Report unreadable files before any process begins.
        read_trace(job.nodes, job.pods)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(_run, job): job for job in todo}
        try:
            for done in as_completed(running):
                yield running[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def policy_of(job: Job, trace: ClusterTrace) -> PlacementPolicy:
    """The job's policy with an empty cluster."""
    if job.policy in MODES:
        return DrayPolicy(job.policy, trace, job.seed, job.ties)
    if job.policy == "fgd":
        return Fgd(trace, job.seed, job.ties)
    return ByRule(job.policy, trace, job.seed, job.ties)


def summary(values: Sequence[float]) -> Summary:
    """The summary of one figure over the seeds."""
    return Summary(fmean(values), stdev(values) if len(values) > 1 else None)


def _run(job: Job) -> PlacementOutcome:
    return _outcome(read_trace(job.nodes, job.pods), job, lambda _: None)


def _outcome(trace: ClusterTrace, job: Job, tell: Callable[[float], None]) -> PlacementOutcome:
    pods = workload(trace, job.seed)
    return run(policy_of(job, trace), pods, trace.gpu_milli, tell)
