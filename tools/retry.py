"""Retries of temporary errors, which a busy machine causes."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from dray.api.errors import TemporaryError
from dray.kube.api import KubeApi
from dray.kube.api_transport import Transport
from dray.kube.kubeconfig import server_access
from dray.kube.ports import AlreadyExistsError, Object, PatchType, Resource

_Answer = TypeVar("_Answer")
_INTERVAL_S = 0.2
_TIMEOUT_S = 60.0


async def retry(act: Callable[[], Awaitable[_Answer]], *, within_s: float = _TIMEOUT_S) -> _Answer:
    """Repeat until it succeeds. Raises the last TemporaryError after ``within_s``."""
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            return await act()
        except TemporaryError:
            if time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(_INTERVAL_S)


class RetryingKube(KubeApi):
    """A ``KubeApi`` that retries creations, patches and deletions."""

    async def create(
        self, resource: Resource, obj: Object, namespace: str = "", *, dry_run: bool = False
    ) -> Object:
        """See ``Kube.create``; also returns an object that an attempt without an answer created."""
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
                namespace_of = namespace or obj["metadata"].get("namespace", "")
                return await self.get(resource, obj["metadata"]["name"], namespace_of)

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


async def connect_with_retries(kubeconfig: str, *, user_agent: str) -> RetryingKube:
    """``dray.kube.api.connect`` with retries."""
    return RetryingKube(Transport(await server_access(kubeconfig), user_agent), user_agent)
