"""A decision on a group counts once all of its parts were read in their order."""

from hypothesis import given
from hypothesis import strategies as st

from dray.messages.decisions import DecidedGroup, PodDecision, Released
from dray.messages.group_parts import NO_GROUP_PARTS

OTHER = Released(
    domain="p", epoch=1, writer="w", facts_sequence=0, now_unix_s=0.0, releases=(), holds=()
)


def part(number: int, parts: int) -> DecidedGroup:
    pod = PodDecision(
        pod_uid=f"{number}-of-{parts}", namespace="ns", name="", node="n", binder="dray", claims=()
    )
    return DecidedGroup(
        domain="p",
        epoch=1,
        writer="w",
        facts_sequence=0,
        now_unix_s=0.0,
        policy_version=1,
        pods=(pod,),
        part=number,
        parts=parts,
    )


def test_all_parts_in_their_order_are_complete() -> None:
    read = NO_GROUP_PARTS
    for number in (1, 2, 3):
        read = read.followed_by(part(number, 3))
        assert read.is_complete == (number == 3)
    assert [pod.pod_uid for pod in read.pods] == ["1-of-3", "2-of-3", "3-of-3"]


@given(st.lists(st.one_of(st.none(), st.tuples(st.integers(1, 3), st.integers(1, 3)))))
def test_no_other_records_amount_to_a_decision(log: list[tuple[int, int] | None]) -> None:
    """As many records as there are parts must precede, each the next part."""
    records = [OTHER if one is None or one[0] > one[1] else part(*one) for one in log]
    read = NO_GROUP_PARTS
    for at, record in enumerate(records):
        read = read.followed_by(record)
        if isinstance(record, DecidedGroup) and record.part == record.parts:
            expected = [part(number, record.parts) for number in range(1, record.parts + 1)]
            assert read.is_complete == (records[: at + 1][-record.parts :] == expected)
        else:
            assert not read.is_complete
