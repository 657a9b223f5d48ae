"""``dray doctor --deep`` shows what each pool has learned of its pods."""

from dray.messages.decisions import Decided, Learned, TypicalPod
from dray.messages.facts import DomainObserved
from dray_allocator.core.handle import handle
from dray_allocator.state.state import AllocatorState
from dray_allocator.values.events import FactSeen, RecordSeen
from dray_allocator.values.options import AllocatorOptions
from dray_cli.doctor.deep.fragmentation_data import as_json, learned_findings, learned_of
from dray_cli.doctor.deep.snapshot import ClusterSnapshot

CLASSES = ("gpu.example.com A100 vram=40Gi", "gpu.example.com  vram=80Gi")
SHARE = TypicalPod(cpu_milli=2500, cards=1, milli=(375, 0), count=1000, gain=7, waste=9)
WHOLE = TypicalPod(cpu_milli=8000, cards=2, milli=(1000, 1000), count=3000, gain=70, waste=90)
LEARNED = Learned(version=4, classes=CLASSES, pods=(SHARE, WHOLE))


def snapshot_of(*learned: Learned | None) -> ClusterSnapshot:
    """One pool, of whose log each record brings something learned, or nothing."""
    state = AllocatorState(AllocatorOptions())
    handle(state, FactSeen(1, DomainObserved(revision=1, domain="fast", epoch=1), more=True))
    for sequence, one in enumerate(learned, 1):
        record = Decided(
            domain="fast",
            epoch=1,
            writer="w",
            facts_sequence=1,
            now_unix_s=0.0,
            policy_version=1,
            pods=(),
            learned=one,
        )
        handle(state, RecordSeen("fast", 1, sequence, record, more=True))
    return ClusterSnapshot(state)


def test_what_the_log_says_last_counts() -> None:
    older = Learned(version=3, classes=CLASSES, pods=(SHARE,))

    assert learned_of(snapshot_of(older, LEARNED, None)) == {"fast": LEARNED}
    assert learned_of(snapshot_of(None)) == {}


def test_typical_pods_are_shown_with_their_weights_the_most_frequent_first() -> None:
    (finding,) = learned_findings({"fast": LEARNED})

    assert finding.line().splitlines() == [
        "  ok  pool fast: version 4, 2 typical pods on 2 classes of cards",
        "        class 0: gpu.example.com A100 vram=40Gi",
        "        class 1: gpu.example.com vram=80Gi",
        "         75.0% of pods: cpu 8, 2 cards: whole (class 0), whole (class 1); "
        "gain 70, waste 90",
        "         25.0% of pods: cpu 2.5, 1 card: 37.5 % (class 0); gain 7, waste 9",
    ]


def test_pods_without_cards_and_pods_that_can_use_none_are_marked() -> None:
    plain = TypicalPod(cpu_milli=1000, cards=0, milli=(0, 0), count=2, gain=0, waste=1)
    barred = TypicalPod(cpu_milli=1000, cards=1, milli=(0, 0), count=1, gain=0, waste=1)

    (finding,) = learned_findings(
        {"fast": Learned(version=1, classes=CLASSES, pods=(plain, barred))}
    )

    assert "no card;" in finding.more[2]
    assert "1 card: of no model in this pool;" in finding.more[3]


def test_of_many_the_rarer_are_only_counted_and_data_has_them_all() -> None:
    pods = tuple(
        TypicalPod(cpu_milli=cpu, cards=1, milli=(10, 0), count=cpu, gain=1, waste=1)
        for cpu in range(1, 11)
    )
    learned = {"fast": Learned(version=1, classes=CLASSES, pods=pods)}

    assert learned_findings(learned)[0].more[-1] == "and 2 rarer pods; --output json lists all"
    shown = as_json(learned)["fast"]
    assert [one["cpu_milli"] for one in shown["pods"]] == [*range(10, 0, -1)]
    assert sum(one["share"] for one in shown["pods"]) == 1.0
    assert shown["classes"] == [*CLASSES]
