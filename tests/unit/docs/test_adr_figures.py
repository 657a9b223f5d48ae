"""Figures in decision records and docs/architecture.md are the code's, or facts of others.

A record has no measurements, because nothing keeps them true: it names the benchmark.
"""

import re
from pathlib import Path

import pytest

from dray.api.claims import EPOCH_SPAN
from dray.api.json_codec import MAX_NESTING, MOST_CONTAINERS
from dray_allocator.cycle import step
from dray_allocator.gangs import long_waits
from dray_allocator.placement.class_search import STEP_LOOKS
from dray_allocator.settings import Allocator
from dray_allocator.state import pending_groups
from dray_allocator.values.options import AllocatorOptions
from dray_claim_controller.leader.lease import MAX_WRITE_S
from dray_claim_controller.logs import epochs
from dray_claim_controller.settings import (
    ExecutionSettings,
    Lease,
    Logs,
    Owner,
    Probing,
    Templates,
)
from dray_claim_controller.work_queue import MOST_S
from dray_webhook.decisions.shape import HASH_DIGITS, MAX_SHAPE_BYTES
from dray_webhook.settings import WebhookGroup

DOCS = Path(__file__).parents[3] / "docs"
ARCHITECTURE = "arch"
RECORDS = [*sorted((DOCS / "adr").glob("0*.md")), DOCS / "architecture.md"]
PER_MINUTE, PER_HOUR, PER_KIB = 60, 3600, 1024
EXECUTION, OPTIONS, PROBING = ExecutionSettings(), AllocatorOptions(), Probing()
OWN: tuple[tuple[str, str, float], ...] = (
    ("0005", "can't place the pod for {} s, dray rolls", EXECUTION.withdraw_after),
    ("0007", "first {} hex digits of its SHA-256", HASH_DIGITS),
    ("0007", "deletes the template {} s after its last pod", Templates().unused_after),
    ("0007", "may be up to {} KiB", MAX_SHAPE_BYTES / PER_KIB),
    ("0009", "on the bus ({} s, renewed every second)", Allocator().lease_ttl),
    ("0012", "(`VoidClaim`, after {} s uncommitted", OPTIONS.uncommitted_after_s),
    ("0013", "`e * {} + 1` and up", EPOCH_SPAN),
    ("0013", "one attempt every {} s", OPTIONS.uncommitted_after_s),
    ("0018", "{} s later (`DRAY_OWNER__QUARANTINE`)", Owner().quarantine),
    ("0019", "for longer than the Lease lasts ({} s)", Lease().renew_deadline),
    ("0019", "The leader looks every {} s at `/version`", PROBING.look_every),
    ("0019", "in any case after {} minutes", PROBING.ask_every / PER_MINUTE),
    ("0019", "Two reads of `/version` in {} s", 2 * PROBING.look_every),
    ("0019", "ten dry runs in {} minutes", PROBING.ask_every / PER_MINUTE),
    ("0019", "For up to {} s after an upgrade", PROBING.look_every),
    ("0024", "the {} s after which an uncommitted one is voided", OPTIONS.uncommitted_after_s),
    ("0024", "not bound after {} minutes", EXECUTION.binding_timeout / PER_MINUTE),
    ("0024", "cpu and memory of a node for {} minutes", EXECUTION.binding_timeout / PER_MINUTE),
    ("0025", "pauses after {} devices", STEP_LOOKS),
    ("0030", "one of {} slots", EXECUTION.concurrency),
    ("0030", "for each key that failed (up to {} min)", MOST_S / PER_MINUTE),
    ("0030", "`DRAY_EXECUTION__GIVE_UP_AFTER` ({} s)", EXECUTION.give_up_after),
    ("0030", "before the allocators void it (after {} s)", OPTIONS.uncommitted_after_s),
    ("0030", "what is left of the Lease and {} s at most", MAX_WRITE_S),
    ("0030", "each for {} s and one more try at most", epochs._PATIENCE_S),
    ("0030", "each write of the executor is over ({} s)", MAX_WRITE_S),
    ("0030", "a try, at least every {} min, writes the void", MOST_S / PER_MINUTE),
    ("0031", "nothing deeper than {} levels", MAX_NESTING),
    ("0031", "that hold more than {} containers", MOST_CONTAINERS),
    ("0031", "Decisions in a record are limited to {} bytes", OPTIONS.decided_bytes),
    ("0031", "may be a `msgspec.Raw` at {} levels", MAX_NESTING),
    ("0035", "`DRAY_LOGS__KEEP_FOR` ({} h)", Logs().keep_for / PER_HOUR),
    ("0035", "after one record for every {} of these pods", step._PODS_PER_RECORD_SINCE),
    ("0036", "`group_trials` such trials (default {})", OPTIONS.group_trials),
    ("0036", "again after {} s, then 2 s", pending_groups._SHORTEST_BACKOFF_S),
    ("0036", ", up to {} s, so that it delays", pending_groups._LONGEST_BACKOFF_S),
    ("0036", "A record has at most {} bytes", OPTIONS.decided_bytes),
    ("0036", "one another, at most {}, and counts", OPTIONS.group_parts),
    ("0036", "needs more than {} nodes", long_waits.MOST_NODES),
    (ARCHITECTURE, "for at most {} ms", 1000 * WebhookGroup().lookup_timeout),
    (ARCHITECTURE, "it is voided after {} s", OPTIONS.uncommitted_after_s),
)
"""Record, text with a place for the figure, and the figure of the code."""
OTHERS: tuple[tuple[str, str], ...] = (
    ("0009", "can be stopped for 20 s"),
    ("0012", "may have slept for 20 s"),
    ("0013", "has 16 digits"),
    ("0020", "50 % and 200 of 312 TFLOPS"),
    ("0021", "do not fit into 64 bits"),
    ("0024", "in PreBind, up to 10 minutes"),
    ("0031", "up to 10 000 levels deep"),
    ("0031", "900 levels on 3.11 and 3.12, 10 000 on 3.13"),
    ("0031", "300 levels end a process with 64 KiB"),
    ("0031", "whose NATS takes 1 MiB"),
    ("0032", "a random name of 128 bits"),
    ("0036", "a group of 512 pods"),
    ("0036", "A group of 512 pods with 8 GPUs each"),
    ("0036", "600 per second on disk, 1 000 messages at most"),
)
"""Figures of Kubernetes, Python, NATS, and of examples."""
MEASURED = "0033"
"""This record compares two commits; it names the commands that measure both."""
UNITS = (
    r"s|ms|µs|us|min|minutes?|hours?|h|days?|[kKMG]B|[KMG]iB|bytes|levels|%|digits|trials|times"
    r"|containers|slots|bits|devices|pods|claims|nodes|pools|GPUs|cores|per second|messages"
)
FIGURE = re.compile(rf"(?<![\w.-])\d[\d ,.]*\s(?:{UNITS})(?![\w/])")


def text_of(record: Path) -> str:
    return " ".join(record.read_text("utf-8").split())


def record(number: str) -> str:
    return text_of(next(path for path in RECORDS if path.name.startswith(number)))


def written(value: float) -> str:
    assert value == int(value)
    return f"{int(value):,}".replace(",", " ") if value >= 1000 else str(int(value))


@pytest.mark.parametrize(("number", "text", "value"), OWN)
def test_a_figure_is_that_of_the_code(number: str, text: str, value: float) -> None:
    assert text.format(written(value)) in record(number)


@pytest.mark.parametrize(("number", "text"), OTHERS)
def test_a_figure_of_others_is_still_there(number: str, text: str) -> None:
    assert text in record(number)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name[:4])
def test_no_other_figure_is_in_a_record(path: Path) -> None:
    text, number = text_of(path), path.name[:4]
    for one, own, value in OWN:
        text = text.replace(own.format(written(value)), "") if one == number else text
    for one, other in OTHERS:
        text = text.replace(other, "") if one == number else text
    assert number == MEASURED or FIGURE.findall(text) == []
