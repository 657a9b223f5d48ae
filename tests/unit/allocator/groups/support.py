"""PodGroups and their pods, handed to the allocator's core."""

from typing import Any

from msgspec.structs import replace

from dray.api import names
from dray.api.claims import ClaimSpec
from dray.api.groups import VOLCANO, PodGroup
from dray.api.pods import GroupKey, GroupMember, Pod
from dray.messages.decisions import AnyRecord, DecidedGroup
from dray.messages.facts import GroupObserved, PodObserved

KEY = GroupKey(VOLCANO, "ns", "train")


def see_group(world: Any, minimum: int, name: str = "train", **fields: Any) -> PodGroup:
    """A PodGroup."""
    deleted = fields.pop("deleted", False)
    key = GroupKey(fields.pop("api", VOLCANO), "ns", name)
    group = PodGroup(key=key, uid=f"group-{name}", minimum=minimum, **fields)
    world.see(GroupObserved(revision=world.next(), group=group, deleted=deleted))
    return group


def member(
    world: Any,
    name: str,
    spec: ClaimSpec | None = None,
    *,
    group: GroupKey = KEY,
    task: str = "",
    labels: dict[str, str] | None = None,
    **changes: Any,
) -> Pod:
    """A pod of a group, with its claim."""
    made = replace(world.a_pod(name), member=GroupMember(group, task, labels or {}), **changes)
    world.submit(made, spec)
    return made


def rider(world: Any, name: str, *, group: GroupKey = KEY, task: str = "", **changes: Any) -> Pod:
    """A pod of a group that needs no devices."""
    made = replace(
        world.a_pod(name),
        pool="",
        claims=(),
        scheduler=names.DEFAULT_SCHEDULER,
        gated=True,
        request_id="r",
        member=GroupMember(group, task),
        **changes,
    )
    world.see(PodObserved(revision=world.next(), pod=made))
    return made


def run(world: Any, *pods: str) -> None:
    """Commit and bind pods as they were decided; their nodes do not count them yet."""
    for uid in pods:
        decision = world.decisions()[uid]
        world.commit(decision)
        known = world.state.facts.pods[uid]
        world.see(
            PodObserved(
                revision=world.next(),
                pod=replace(known, node=decision.node, phase="Running", gated=False),
            )
        )


def group_records(world: Any) -> list[DecidedGroup]:
    """The decisions on groups."""
    log: list[AnyRecord] = world.logs["pool"]
    return [record for record in log if isinstance(record, DecidedGroup)]


def together(world: Any) -> list[set[str]]:
    """The pods of each decision on a group."""
    return [{one.pod_uid for one in record.pods} for record in group_records(world)]


def why(world: Any, name: str) -> str:
    """Why a pod waits, as a person reads it."""
    assert name not in world.decisions()
    found = world.waits(name)
    assert found, f"{name} waits without a word"
    return "\n".join(map(str, found[-1].reasons))
