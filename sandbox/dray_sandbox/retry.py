"""Retries of temporary errors, as on a busy machine."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from dray.api.errors import TemporaryError
from dray.kube.api import KubeApi
from dray.kube.api_transport import Transport, configuration
from dray.kube.ports import AlreadyExistsError, Object, PatchType, Resource

_Answer = TypeVar("_Answer")
_AGAIN_S = 0.2
_PATIENCE_S = 60.0


async def retry(act: Callable[[], Awaitable[_Answer]], *, within_s: float = _PATIENCE_S) -> _Answer:
    """Repeat until it succeeds. Raises the last TemporaryError after ``within_s``."""
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            return await act()
        except TemporaryError:
            if time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(_AGAIN_S)


class RetryingKube(KubeApi):
    """``KubeApi`` whose creations, patches and deletions are repeated until they succeed."""

    async def create(
        self, resource: Resource, obj: Object, namespace: str = "", *, dry_run: bool = False
    ) -> Object:
        """See ``Kube.create``; what an unheard try created is returned as it is."""
        tries = 0

        async def act() -> Object:
            nonlocal tries
            tries += 1
            try:
                return await super(RetryingKube, self).create(
                    resource, obj, namespace, dry_run=dry_run
                )
            except AlreadyExistsError:
                if tries == 1:
                    raise
                place = namespace or obj["metadata"].get("namespace", "")
                return await self.get(resource, obj["metadata"]["name"], place)

        return await retry(act)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        namespace: str = "",
        *,
        kind: PatchType = "merge",
        subresource: str = "",
        timeout_s: float | None = None,
    ) -> Object:
        """See ``Kube.patch``."""
        patched = super().patch
        return await retry(
            lambda: patched(
                resource,
                name,
                patch,
                namespace,
                kind=kind,
                subresource=subresource,
                timeout_s=timeout_s,
            )
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: int | None = None,
        grace_period_s: int | None = None,
    ) -> None:
        """See ``Kube.delete``."""
        deleted = super().delete
        await retry(
            lambda: deleted(
                resource,
                name,
                namespace,
                uid=uid,
                resource_version=resource_version,
                grace_period_s=grace_period_s,
            )
        )


async def connect_patiently(kubeconfig: str, *, user_agent: str) -> RetryingKube:
    """``dray.kube.api.connect`` for somebody with patience."""
    return RetryingKube(Transport(await configuration(kubeconfig), user_agent), user_agent)
