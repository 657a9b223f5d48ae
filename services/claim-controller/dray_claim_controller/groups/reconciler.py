"""Writes the status of PodGroups and Queues, removes gates, and ends groups past their deadline."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog

from dray.api.errors import DrayError, TemporaryError
from dray.api.groups import VOLCANO
from dray.api.pods import GroupKey
from dray.kube.convert_groups import owned_name
from dray.kube.ports import (
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    PODS,
    QUEUES,
    AlreadyExistsError,
    Kube,
    KubeUnavailableError,
    NotFoundError,
    NotServedError,
    Object,
    Resource,
    WatchEvent,
)
from dray.messages.decisions import Waiting
from dray.reasons import in_words
from dray.runtime.clock import Clock
from dray_claim_controller.cache.changes import Unread
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.execution.decisions.adoption import GroupRollbacks
from dray_claim_controller.execution.decisions.executions import OpenExecutions
from dray_claim_controller.execution.rollback import Rollback
from dray_claim_controller.execution.writes import ExecutionWrites
from dray_claim_controller.groups.decisions.rules import (
    DueForGroup,
    GroupActions,
    GroupStatus,
    MissingGroups,
    QueueStatuses,
    controller_of,
    default_queue,
    lacks_pods_of_owner,
    owned_group,
    owner_with_pod_count,
    pods_of,
)
from dray_claim_controller.informers import Informers
from dray_claim_controller.work_queue import FairWorkQueue

_AT_ONCE: Final = 200
"""Groups that are looked at in one step."""


@dataclass(frozen=True, slots=True)
class _Owned:
    """A group to be created for the owner of a pod, by the pod's UID."""

    key: GroupKey
    pod_uid: str


_Work = GroupKey | _Owned | str
"""A PodGroup to be looked at or to be created, or a Queue to be written."""


def _namespace_of(work: _Work) -> str:
    match work:
        case GroupKey():
            return work.namespace
        case _Owned():
            return work.key.namespace
        case _:
            return ""


class GroupReconciler:
    """Looks every ``every_s`` seconds at the groups that changed, and at groups with too few
    running pods. A group that can't be written is tried again, later each time; it delays no group
    of another namespace."""

    def __init__(
        self,
        kube: Kube,
        informers: Informers,
        clock: Clock,
        *,
        writes: ExecutionWrites,
        rollback: Rollback,
        executions: Callable[[], Mapping[str, OpenExecutions]],
        executing: Callable[[], tuple[str, ...]],
        every_s: float,
        timeout_s: float,
        grace_s: float,
        acts_for_volcano: bool = False,
    ) -> None:
        """``timeout_s``: how long too few pods of a group may run after its first decision, unless
        the group says otherwise; ``grace_s``: the same after the group has run.
        ``acts_for_volcano``: whether Volcano is absent; dray then handles queues and groups
        without pods."""
        self._kube = kube
        self._informers = informers
        self._cache: ObjectCache = informers.cache
        self._clock = clock
        self._writes = writes
        self._rollback = rollback
        self._executions = executions
        self._executing = executing
        self._every_s = every_s
        self._timeout_s, self._grace_s = timeout_s, grace_s
        self._acts_for_volcano = acts_for_volcano
        self._changed: Unread[GroupKey] = Unread()
        self._changed_pods: Unread[str] = Unread()
        self._below_since_s: dict[GroupKey, float] = {}
        """When groups were found with too few running pods, some of which hold devices."""
        self._has_new_queues = True
        self._queue: FairWorkQueue[_Work] = FairWorkQueue(
            clock, self._serve, name="groups", group_of=_namespace_of, first_s=every_s
        )
        self._owners: FairWorkQueue[GroupKey] = FairWorkQueue(
            clock,
            self._follow_owner,
            name="owners-of-groups",
            group_of=_namespace_of,
            workers=1,
            first_s=every_s,
            most_s=max(every_s, grace_s / 2),
        )
        """Groups that lack pods: their owners are asked one by one, each less and less often, and
        at least once before its group ends."""

    @property
    def backlog(self) -> int:
        """Groups and queues that are still to be looked at."""
        return len(self._queue)

    async def run(self) -> None:
        """Keep until cancelled."""
        cache = self._cache
        cache.group_members.changed.subscribe(self._changed)
        cache.changed_pods.subscribe(self._changed_pods)
        self._informers.listeners.append(self._listen)
        self._changed.add(self._all())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._queue.run(), name="write-groups")
                group.create_task(self._owners.run(), name="follow-owners")
                group.create_task(self._reconcile_forever(), name="look-at-groups")
        finally:
            self._informers.listeners.remove(self._listen)
            cache.changed_pods.unsubscribe(self._changed_pods)
            cache.group_members.changed.unsubscribe(self._changed)

    def waiting(self, waiting: Waiting) -> None:
        """The decision log says why a pod waits."""
        self._changed_pods.add((waiting.pod_uid,))

    async def _reconcile_forever(self) -> None:
        while True:
            await self._look()
            await self._clock.sleep(self._every_s)

    async def _look(self) -> None:
        for uid in self._changed_pods.take():
            cached = self._cache.pods.get(uid)
            if cached is not None and cached.pod is not None and cached.pod.member is not None:
                self._changed.add((cached.pod.member.group,))
        is_news = bool(self._changed) or self._has_new_queues
        self._changed.add(self._below_since_s)
        while found := self._changed.take(_AT_ONCE):
            for key in found:
                self._queue.add(key)
            await asyncio.sleep(0)
        if is_news:
            self._has_new_queues = False
            self._look_at_queues()
            for key, uid in self._informers.evaluate(MissingGroups()):
                self._queue.add(_Owned(key, uid))

    def _listen(self, resource: Resource, _: WatchEvent) -> None:
        if resource is QUEUES:
            self._has_new_queues = True

    def _all(self) -> list[GroupKey]:
        found = dict.fromkeys(self._cache.group_members.groups())
        for qualified in self._cache.plain[POD_GROUPS.plural]:
            namespace, _, name = qualified.partition("/")
            found[GroupKey(VOLCANO, namespace, name)] = None
        return list(found)

    def _look_at_queues(self) -> None:
        rule = QueueStatuses(acts_for_volcano=self._acts_for_volcano)
        for queue in self._informers.evaluate(rule):
            self._queue.add(queue)

    async def _serve(self, work: _Work) -> None:
        match work:
            case GroupKey():
                await self._serve_group(work)
            case _Owned():
                await self._create_owned(work)
            case _:
                await self._write_queue(work)

    async def _serve_group(self, key: GroupKey) -> None:
        if self._cache.group(key) is None:
            self._below_since_s.pop(key, None)
            return
        if lacks_pods_of_owner(self._cache, key) is not None:
            self._owners.add(key)
        due = self._due(key)
        if due.evict:
            await self._look_past_the_watch(due.evict)
            due = self._due(key)
        await self._act(key, due)
        await self._write_status(key)

    async def _follow_owner(self, key: GroupKey) -> None:
        """Lower the minimum of a group whose owner has been scaled down."""
        pod, obj = lacks_pods_of_owner(self._cache, key), self._cache.group(key)
        if pod is None or obj is None:
            return
        owner = await self._owner(pod.object, key.namespace, key)
        number = pods_of(owner) if owner is not None and "spec" in owner else 0
        if not 0 < number < obj["spec"]["minMember"]:
            raise TemporaryError(f"PodGroup {key} lacks pods, and its owner may be scaled down yet")
        await self._patch(POD_GROUPS, obj, {"spec": {"minMember": number}})

    def _due(self, key: GroupKey) -> GroupActions:
        now_s = self._clock.monotonic_s()
        executing = dict.fromkeys(self._executing())
        own = self._cache.group_members.of(key)
        due = self._informers.evaluate(
            DueForGroup(
                group=key,
                below_s=now_s - self._below_since_s.get(key, now_s),
                timeout_s=self._timeout_s,
                grace_s=self._grace_s,
                executing=tuple(sorted(uid for uid in own if uid in executing)),
            )
        )
        if due.is_below:
            self._below_since_s.setdefault(key, now_s)
        else:
            self._below_since_s.pop(key, None)
        return due

    async def _look_past_the_watch(self, uids: Iterable[str]) -> None:
        """Read those of these pods that have no node: kube-scheduler may have bound them, and the
        watch may be behind."""
        for uid in uids:
            cached = self._cache.pods.get(uid)
            if cached is None or cached.pod is None or cached.pod.node:
                continue
            try:
                found = await self._kube.get(PODS, cached.pod.name, cached.pod.namespace)
            except NotFoundError:
                continue
            if found["metadata"]["uid"] == uid:
                self._informers.apply_response(PODS, found)

    async def _act(self, key: GroupKey, due: GroupActions) -> None:
        for uid in due.ungate:
            cached = self._cache.pods.get(uid)
            if cached is not None and cached.pod is not None:
                answer = await self._writes.lift_gate(cached, cached.pod)
                self._informers.apply_response(PODS, answer)
        if due.evict or due.roll_back:
            structlog.get_logger().warning(
                "too few pods of a group run: evicting the others",
                group=str(key),
                evicted=len(due.evict),
                rolled_back=len(due.roll_back),
            )
        ending = [
            partial(self._rollback.roll_back, execution.decision)
            for execution in self._informers.evaluate(GroupRollbacks(pods=due.roll_back))
        ]
        for uid in due.evict:
            cached = self._cache.pods.get(uid)
            if cached is not None and (pod := cached.pod) is not None:
                ending.append(partial(self._kube.evict, pod.name, pod.namespace, uid=uid))
        await self._end_all(ending)

    async def _end_all(self, ending: Iterable[Callable[[], Awaitable[None]]]) -> None:
        """Make all requests, then raise the first error, so that a pod that a disruption budget
        protects does not keep other pods of its group. If the server is away, stop at once: the
        group may run when it is back."""
        errors = list[DrayError]()
        for end in ending:
            try:
                await end()
            except DrayError as error:
                if isinstance(error, KubeUnavailableError):
                    await self._kube.version()
                errors.append(error)
        if errors:
            raise errors[0]

    async def _write_status(self, key: GroupKey) -> None:
        if not self._acts_for_volcano and not self._cache.members_of(key):
            return
        status = self._informers.evaluate(
            GroupStatus(group=key, waiting=self._why(key), now_unix_s=self._clock.now_unix_s())
        )
        obj = self._cache.group(key)
        if status is None or obj is None:
            return
        is_volcano = key.api == VOLCANO
        await self._patch(
            POD_GROUPS if is_volcano else NATIVE_POD_GROUPS,
            obj,
            {"status": status},
            subresource="" if is_volcano else "status",
        )

    def _why(self, key: GroupKey) -> str:
        """Why the group's pods wait, by the newest record about one of them."""
        for cached in self._cache.members_of(key):
            pod = cached.pod
            log = None if pod is None else self._executions().get(pod.pool)
            waiting = None if log is None else log.waiting.get(cached.uid)
            if waiting is not None:
                return in_words(waiting.reasons, 900)
        return ""

    async def _patch(
        self, resource: Resource, obj: Object, parts: dict[str, Any], *, subresource: str = ""
    ) -> None:
        metadata = obj["metadata"]
        # Fenced: what another scheduler or a user has written meanwhile is read first.
        fence = {name: metadata[name] for name in ("uid", "resourceVersion")}
        answer = await self._kube.patch(
            resource,
            metadata["name"],
            {"metadata": fence, **parts},
            metadata.get("namespace") or "",
            subresource=subresource,
        )
        self._informers.apply_response(resource, answer)

    async def _write_queue(self, name: str) -> None:
        rule = QueueStatuses(acts_for_volcano=self._acts_for_volcano)
        status = self._informers.evaluate(rule).get(name)
        obj = self._cache.plain[QUEUES.plural].get(name)
        if obj is None and status is not None:
            await self._create(QUEUES, default_queue())
        elif obj is not None and status:
            await self._patch(QUEUES, obj, {"status": status}, subresource="status")

    async def _create_owned(self, owned: _Owned) -> None:
        cached = self._cache.pods.get(owned.pod_uid)
        if cached is None or self._cache.group(owned.key) is not None:
            return
        namespace = owned.key.namespace
        owner = await self._owner(cached.object, namespace, owned.key)
        if owner is None:
            name = cached.object["metadata"]["name"]
            raise TemporaryError(f"pod {namespace}/{name} has no owner for PodGroup {owned.key}")
        group = owned_group(cached.object, owned.key, owner)
        await self._create(POD_GROUPS, group, namespace)

    async def _owner(self, pod: Object, namespace: str, key: GroupKey) -> Object | None:
        """The owner after which a pod's group is named: the object, if it can be asked for the
        number of its pods; else the pod's reference to it."""
        reference, asked = controller_of(pod), set[str]()
        while reference is not None and reference["uid"] not in asked:  # Owners may form a circle.
            asked.add(reference["uid"])
            is_owner = key.name == owned_name(reference["uid"])
            resource = owner_with_pod_count(reference)
            if resource is None:
                return reference if is_owner else None
            try:
                owner = await self._kube.get(resource, reference["name"], namespace)
            except NotFoundError:
                return None
            if owner["metadata"]["uid"] != reference["uid"]:
                return None
            if is_owner:
                return owner
            reference = controller_of(owner)
        return None

    async def _create(self, resource: Resource, obj: Object, namespace: str = "") -> None:
        try:
            answer = await self._kube.create(resource, obj, namespace)
        except (AlreadyExistsError, NotServedError):
            return  # Its watch shows it, or will once it is served.
        self._informers.apply_response(resource, answer)
