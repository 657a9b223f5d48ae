"""Which pods are in which PodGroup. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from dray.api.pods import TERMINAL_PHASES, GroupKey, Pod
from dray.kube.ports import NATIVE_POD_GROUPS, POD_GROUPS
from dray_claim_controller.cache.cached_objects import FactKey
from dray_claim_controller.cache.changes import ChangeFeed, enter, leave


@dataclass(frozen=True, slots=True)
class ForeignMember:
    """A pod that names a group and that dray does not schedule."""

    group: GroupKey
    scheduler: str


class GroupMembers:
    """The members of each group, by UID: those that dray schedules, and others."""

    def __init__(self) -> None:
        self._members: dict[GroupKey, dict[str, None]] = {}
        self._foreign: dict[GroupKey, dict[str, None]] = {}
        self._foreign_of: dict[str, ForeignMember] = {}
        self.changed: ChangeFeed[GroupKey] = ChangeFeed()
        """Groups that came, changed or went, or whose members or queue did."""

    def put(self, before: Pod | None, after: Pod | None) -> tuple[GroupKey, ...]:
        """Note that a pod of dray changed or is gone (None). Returns the groups that it was and is
        in, if something changed that their facts depend on."""
        for pod in (before, after):
            if pod is not None and pod.member is not None:
                put = enter if pod is after else leave
                put(self._members, pod.member.group, pod.uid)
        groups = {
            pod.member.group: None for pod in (before, after) if pod and pod.member is not None
        }
        self.changed.put(*groups)
        return () if _terms(before) == _terms(after) else tuple(groups)

    def put_foreign(self, uid: str, now: ForeignMember | None) -> tuple[GroupKey, ...]:
        """Note the group that a pod of another scheduler is in; None: it is in none. Returns the
        affected groups."""
        known = self._foreign_of.pop(uid, None)
        if known is not None:
            leave(self._foreign, known.group, uid)
        if now is not None:
            self._foreign_of[uid] = now
            enter(self._foreign, now.group, uid)
        groups = {one.group: None for one in (known, now) if one is not None}
        return () if known == now else tuple(groups)

    def of(self, group: GroupKey) -> Iterable[str]:
        """UIDs of the pods of a group that dray schedules."""
        return self._members.get(group, {}).keys()

    def groups(self) -> tuple[GroupKey, ...]:
        """The groups that have pods of dray."""
        return tuple(self._members)

    def foreign_schedulers(self, group: GroupKey) -> list[str]:
        """The schedulers of a group's other pods, each once, sorted."""
        found = (self._foreign_of[uid].scheduler for uid in self._foreign.get(group, ()))
        return sorted(dict.fromkeys(found))


def _terms(pod: Pod | None) -> tuple[object, ...]:
    """The parts of a member that the fact of its group depends on."""
    if pod is None or pod.member is None:
        return ()
    ended = pod.deleting or pod.phase in TERMINAL_PHASES
    return (pod.member.group, ended) if ended else (pod.member.group, pod.pool, pod.priority)


def fact_key(group: GroupKey) -> FactKey:
    """The key of a group's fact."""
    return FactKey("group", f"{group.api}/{group.namespace}/{group.name}")


def key_from(key: FactKey) -> GroupKey:
    """The group of a fact."""
    api, namespace, name = key.identity.split("/", 2)
    return GroupKey(api, namespace, name)  # type: ignore[arg-type]


def resource_of(group: GroupKey) -> str:
    """The plural under which the group's object is cached."""
    kinds = (POD_GROUPS, NATIVE_POD_GROUPS)
    return next(kind.plural for kind in kinds if kind.group == group.api)
