"""When the minimum of a group is met."""

from hypothesis import given
from hypothesis import strategies as st
from tests.counted import count_members

from dray.api.groups import KUBERNETES, VOLCANO, GroupCount, PodGroup, SubGroupPolicy
from dray.api.pods import GroupKey, NodeExpression

KEY = GroupKey(VOLCANO, "team", "train")


def group(**fields: object) -> PodGroup:
    return PodGroup(key=KEY, uid="g", **fields)  # type: ignore[arg-type]


def test_a_group_without_minimum_is_not_a_gang() -> None:
    assert not group().is_gang
    assert count_members(group(), []).is_met


def test_the_minimum_counts_all_members() -> None:
    count = count_members(group(minimum=3), [("ps", {}), ("worker", {})])
    assert not count.is_met
    assert count.in_words() == "2 of 3 pods (minMember)"
    count.add("worker")
    assert count.is_met


def test_a_native_group_names_its_own_field() -> None:
    native = PodGroup(key=GroupKey(KUBERNETES, "team", "train"), uid="g", minimum=2)
    assert GroupCount(native).in_words() == "0 of 2 pods (minCount)"


def test_each_task_has_its_own_minimum() -> None:
    gang = group(minimum=2, task_minimums={"ps": 1, "worker": 1})
    count = count_members(gang, [("worker", {}), ("worker", {})])
    assert not count.is_met
    assert count.lacking_tasks == {"ps": 1}
    assert count.in_words() == "0 of 1 pods of task ps (minTaskMember)"


def test_subgroups_count_once_they_have_enough_members() -> None:
    policy = SubGroupPolicy(name="replica", label_keys=("replica",), size=2, minimum=2)
    gang = group(sub_groups=(policy,))
    count = count_members(gang, [("", {"replica": "0"})] * 3 + [("", {"replica": "1"})])
    assert count.lacking_subgroups == {0: 1}
    assert count.in_words() == "1 of 2 subgroups of replica with 2 pods each (subGroupPolicy)"
    count.add("", {"replica": "1"})
    assert count.is_met


def test_pods_without_the_label_are_in_no_subgroup() -> None:
    policy = SubGroupPolicy(
        selector=(NodeExpression("role", "In", ("worker",)),), label_keys=("replica",), minimum=1
    )
    assert policy.subgroup_of({"role": "worker"}) is None
    assert policy.subgroup_of({"role": "ps", "replica": "1"}) is None
    assert policy.subgroup_of({"role": "worker", "replica": "1"}) == "1"


MEMBERS = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([{}, {"r": "0"}])))


@given(MEMBERS, MEMBERS, st.integers(0, 4), st.integers(0, 2), st.integers(0, 2))
def test_taking_members_away_is_as_if_they_had_not_been_counted(
    stay: list[tuple[str, dict[str, str]]],
    leave: list[tuple[str, dict[str, str]]],
    minimum: int,
    of_task: int,
    subgroups: int,
) -> None:
    policy = SubGroupPolicy(label_keys=("r",), minimum=subgroups)
    gang = group(minimum=minimum, task_minimums={"a": of_task}, sub_groups=(policy,))
    count = count_members(gang, [*stay, *leave])
    for task, labels in leave:
        count.add(task, labels, -1)
    expected = count_members(gang, stay)
    assert (count.is_met, count.in_words()) == (expected.is_met, expected.in_words())
