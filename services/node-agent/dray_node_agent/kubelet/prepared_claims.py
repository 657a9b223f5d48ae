"""The claims prepared on this node: in memory, in the checkpoint and in the CDI folder.

All agents of a node share checkpoint and folder. A change is applied under their lock, to the last
content that one of them wrote. Changes that wait for the disk are written together: the files of
removed claims are deleted, then the checkpoint is written, then the files of new claims. A crash
can leave an entry without its file, which the next start repairs, but no file without an entry.

A power cut can undo the last writes, but then no container runs any more: the kubelet prepares the
claims of its pods again, and an entry of another allocation is replaced or swept.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import structlog

from dray.api.errors import DrayError, TemporaryError
from dray_node_agent.decisions.cdi import Spec
from dray_node_agent.decisions.prepared_claim import PreparedClaim
from dray_node_agent.files.agent_locks import AgentLock, HeldLock
from dray_node_agent.files.cdi_folder import CdiFolder
from dray_node_agent.files.checkpoint import CheckpointFile, LoadedCheckpoint, boot_id

Claims = Mapping[str, PreparedClaim]
"""By claim uid."""
Decide = Callable[[Claims], PreparedClaim]
"""A claim's entry, given all claims. Pure; raises a DrayError to change nothing."""
_LOCK_TIMEOUT_S: Final = 20.0
"""How long a call waits for another agent; below the kubelet's time-out of a call, 45 s."""


class UnwrittenError(TemporaryError):
    """A change of the claims was not written, for an unforeseen reason."""


class PreparedClaims:
    """The prepared claims. ``lock``: shared by the node's agents; None: there is only this one."""

    def __init__(
        self, checkpoint: CheckpointFile, cdi: CdiFolder, lock: AgentLock | None = None
    ) -> None:
        self._checkpoint = checkpoint
        self._cdi = cdi
        self._lock = lock
        self._claims: dict[str, PreparedClaim] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called after this agent has changed the claims, or has read another agent's change."""
        self._written = -1
        """The lock's counter at the last write that is in memory."""
        self._queue: list[_Queued] = []
        self._busy = asyncio.Lock()

    @property
    def claims(self) -> Claims:
        """The claims as this agent knows them; another agent may have changed them. A change
        replaces the mapping."""
        return self._claims

    async def devices(self) -> set[str]:
        """The devices that claims use, whichever agent of the node prepared them. Raises
        LockHeldError, OSError."""
        async with self._exclusive() as lock:
            await self._refresh(lock)
            return {
                device.device
                for claim in self._claims.values()
                for device in claim.devices
                if not device.admin_access
            }

    def others(self, uid: str) -> list[PreparedClaim]:
        """All claims but one."""
        return [claim for claim in self._claims.values() if claim.uid != uid]

    async def enter(self, uid: str, decide: Decide) -> PreparedClaim:
        """A claim's entry, with its CDI file.

        Raises what ``decide`` raises, LockHeldError, and OSError. If the CDI file can't be written,
        the entry stays.
        """
        own = _Queued(uid, decide)
        await self._change(own)
        assert own.entry is not None  # without an error
        return own.entry

    async def remove(self, uid: str, *, only: PreparedClaim | None = None) -> None:
        """Remove a claim's file, and its entry if there is one.

        ``only``: the entry that the caller has checked; nothing is removed if the claim was
        prepared again meanwhile, here or by another agent. Raises LockHeldError, OSError.
        """
        await self._change(_Queued(uid, only=only))

    async def _change(self, own: "_Queued") -> None:
        self._queue.append(own)
        async with self._busy:
            # A call that waited before this one may have written this change with its own.
            if own in self._queue:
                await self._write_queue()
        if own.error is not None:
            raise own.error

    async def write_file(self, claim: PreparedClaim) -> None:
        """Write a claim's CDI file if it is not there."""
        await asyncio.to_thread(self._cdi.write, claim.uid, claim.cdi)

    async def restore(self, rebuild: Callable[[], Awaitable[Claims]]) -> Claims:
        """Restore the claims of earlier agents, and their CDI files, which a reboot deletes.

        ``rebuild`` is awaited for the claims if the checkpoint can't be used. Raises what it
        raises, LockHeldError and OSError.
        """
        async with self._exclusive() as lock:
            loaded = await asyncio.to_thread(self._checkpoint.load)
            if _is_unknown(loaded, self._cdi):
                claims = await rebuild()
            else:
                claims = {
                    uid: one
                    for uid, one in loaded.claims.items()
                    if one.phase == "PrepareCompleted"
                }
            await self._save(dict(claims), lock)
            for claim in claims.values():
                await self.write_file(claim)
            await self._remove_files_except(set(claims))
        return claims

    async def files(self) -> dict[str, Spec]:
        """The CDI files that can be read, by claim uid."""
        return await asyncio.to_thread(self._cdi.specs)

    async def remove_leftovers(self) -> None:
        """Remove the CDI files of claims that are not prepared. Raises LockHeldError, OSError."""
        async with self._exclusive() as lock:
            await self._refresh(lock)
            await self._remove_files_except(set(self._claims))

    async def _remove_files_except(self, known: set[str]) -> None:
        for uid in await asyncio.to_thread(self._cdi.claims):
            if uid not in known:
                await asyncio.to_thread(self._cdi.remove, uid)

    async def _write_queue(self) -> None:
        queued: list[_Queued] = []
        try:
            async with self._among_agents() as lock:
                await self._refresh(lock)
                queued = self._take_queue()
                if removed := [one for one in queued if one.removes_from(self._claims)]:
                    await asyncio.to_thread(self._remove_files, removed)
                await self._save(_applied(self._claims, queued), lock, queued)
        except (DrayError, OSError) as error:
            for one in queued or self._take_queue():
                one.error = one.error or error
        except BaseException as error:
            why = UnwrittenError(f"the checkpoint was not written: {error!r}")
            for one in queued:
                one.error = one.error or why
            raise

    def _take_queue(self) -> list["_Queued"]:
        queued, self._queue = self._queue, []
        return queued

    async def _refresh(self, lock: HeldLock | None) -> None:
        """Read again what another agent has written."""
        if lock is None or lock.counter == self._written:
            return
        loaded = await asyncio.to_thread(self._checkpoint.load)
        if loaded.corrupt:
            # The claims that this agent knows replace it.
            structlog.get_logger().error("the checkpoint was damaged", why=loaded.corrupt)
        else:
            self._claims = loaded.claims
            self.on_change()
        self._written = lock.counter

    async def _save(
        self,
        claims: dict[str, PreparedClaim],
        lock: HeldLock | None,
        queued: Sequence["_Queued"] = (),
    ) -> None:
        """Write the checkpoint, and the CDI files of the entered claims."""
        is_changed = not queued or claims != self._claims
        counter = self._written
        if is_changed and lock is not None:
            counter = lock.raise_counter()
        await asyncio.to_thread(self._write, claims, queued, is_changed)
        if is_changed:
            self._claims, self._written = claims, counter
            self.on_change()

    def _remove_files(self, removed: Sequence["_Queued"]) -> None:
        for one in removed:
            one.tries(self._cdi.remove, one.uid)

    def _write(self, claims: Claims, queued: Sequence["_Queued"], is_changed: bool) -> None:
        if is_changed:
            self._checkpoint.save(claims)
        for one in queued:
            if one.entry is not None:
                one.tries(self._cdi.write, one.uid, one.entry.cdi)

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[HeldLock | None]:
        async with self._busy, self._among_agents() as lock:
            yield lock

    @asynccontextmanager
    async def _among_agents(self) -> AsyncIterator[HeldLock | None]:
        if self._lock is None:
            yield None
            return
        async with self._lock.held(within_s=_LOCK_TIMEOUT_S) as lock:
            yield lock


@dataclass(slots=True, eq=False)
class _Queued:
    """A change of one claim that waits for the disk. ``decide``: makes its entry; None: remove
    it."""

    uid: str
    decide: Decide | None = None
    only: PreparedClaim | None = None
    """Remove the claim only if this is its entry; None: remove it in any case."""
    entry: PreparedClaim | None = None
    error: DrayError | OSError | None = None

    def removes_from(self, claims: Claims) -> bool:
        """Whether this change removes its claim from ``claims``."""
        return self.decide is None and (self.only is None or claims.get(self.uid) == self.only)

    def tries(self, write: Callable[..., None], *arguments: Any) -> None:
        """Write or remove its file. An error fails this change alone."""
        try:
            write(*arguments)
        except OSError as error:
            self.error = error


def _applied(claims: Claims, queued: Sequence[_Queued]) -> dict[str, PreparedClaim]:
    """The claims after all changes that have not failed. A change that raises a DrayError changes
    nothing."""
    changed = dict(claims)
    for one in queued:
        if one.decide is not None:
            try:
                changed[one.uid] = one.entry = one.decide(changed)
            except DrayError as error:
                one.error = error
        elif one.error is None and one.removes_from(changed):
            changed.pop(one.uid, None)
    return changed


def _is_unknown(loaded: LoadedCheckpoint, cdi: CdiFolder) -> bool:
    """Whether the prepared claims must be rebuilt."""
    if loaded.corrupt:
        structlog.get_logger().error(
            "the checkpoint could not be used; rebuilding it from allocated claims",
            why=loaded.corrupt,
            lost="which of the allocated claims were really prepared",
        )
        return True
    if loaded.fresh and cdi.claims():
        structlog.get_logger().warning("CDI files without a checkpoint; rebuilding it")
        return True
    if not loaded.fresh and loaded.boot_id != boot_id():
        structlog.get_logger().info("the node was restarted; writing CDI files again")
    return False
