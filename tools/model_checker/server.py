"""An API server of single objects, with the real writes of the claim-controller."""

import copy
from collections.abc import Callable, Coroutine
from typing import Any

from dray.api.pods import Pod
from dray.kube.memory import MemoryKube
from dray.kube.memory_store import MemoryStore
from dray.kube.ports import CLAIMS, PODS, ConflictError, NotFoundError, Object, RefusedError
from dray_claim_controller.cache.cached_objects import CachedResourceClaim
from dray_claim_controller.execution.writes import ExecutionWrites
from tools.model_checker.subjects import NAMESPACE, SubjectKind, Subjects

ClaimWrite = Callable[[ExecutionWrites, CachedResourceClaim], Coroutine[Any, Any, Object]]


class ModelServer:
    """Results of writes by object version; each is computed once."""

    def __init__(self, subjects: Subjects) -> None:
        self._subjects = subjects
        self._written: dict[tuple[object, ...], int | None] = {}

    def write(
        self, about: tuple[object, ...], subject: int, seen: int, now: int, write: ClaimWrite
    ) -> int | None:
        """The version after a write for the version ``seen`` that meets ``now``; None if the
        server refuses it or nothing changes. ``about`` identifies the write."""
        key = (*about, subject, seen, now)
        if key not in self._written:
            self._written[key] = self._write(subject, seen, now, write)
        return self._written[key]

    def bind(self, pod: int, seen: int, now: int, node: str) -> int | None:
        """The version after POST pods/binding; None if the server refuses it."""
        key = ("bind", pod, seen, now, node)
        if key not in self._written:

            async def bind(kube: MemoryKube) -> None:
                await ExecutionWrites(kube, lambda: None).bind(self._pod(pod, seen), node)

            self._written[key] = self._run(pod, now, bind)
        return self._written[key]

    def keep_unbound(self, pod: int, seen: int, now: int, voids: str) -> int | None:
        """The version with the pod's void annotation; None if the server refuses it."""
        key = ("keep unbound", pod, seen, now, voids)
        if key not in self._written:

            async def annotate(kube: MemoryKube) -> None:
                await ExecutionWrites(kube, lambda: None).keep_unbound(self._pod(pod, seen), voids)

            self._written[key] = self._run(pod, now, annotate)
        return self._written[key]

    def _pod(self, pod: int, version: int) -> Pod:
        seen = self._subjects.cache({pod: version}).pods[self._subjects.all[pod].name]
        assert seen.pod is not None
        return seen.pod

    def _write(self, subject: int, seen: int, now: int, write: ClaimWrite) -> int | None:
        uid = self._subjects.all[subject].name
        claim = self._subjects.cache({subject: seen}).claims[uid]

        async def run(kube: MemoryKube) -> None:
            await write(ExecutionWrites(kube, lambda: None), claim)

        return self._run(subject, now, run)

    def _run(
        self,
        subject: int,
        now: int,
        request: Callable[[MemoryKube], Coroutine[Any, Any, None]],
    ) -> int | None:
        """Send a request to a server that has only the object."""
        if now == self._subjects.gone:
            return None
        one = self._subjects.all[subject]
        resource = CLAIMS if one.kind is SubjectKind.CLAIM else PODS
        held = copy.deepcopy(self._subjects.versions[now])
        revision = int(held["metadata"]["resourceVersion"])
        store = MemoryStore(lambda: 0.0, revision=revision)
        store.of(resource)[NAMESPACE, one.name] = held
        try:
            run_now(request(MemoryKube(store)))
        except (ConflictError, NotFoundError, RefusedError):
            return None
        made = store.of(resource)[NAMESPACE, one.name]
        made.get("status", {}).pop("conditions", None)  # Their times would make states differ.
        number = self._subjects.number(made)
        return number if number != now else None


def run_now(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("the coroutine waits")
