"""The claims prepared on this node: in memory, in the checkpoint and in the CDI folder."""

import asyncio
from collections.abc import Mapping

import msgspec
import structlog

from dray_node_agent.decisions.prepared_claim import PreparedClaim
from dray_node_agent.files.cdi_folder import CdiFolder
from dray_node_agent.files.checkpoint import CheckpointFile, boot_id


class PreparedClaims:
    """The prepared claims. A write that raises OSError changes nothing in memory.

    Hold ``changing`` from reading the claims until the write that depends on it.
    """

    def __init__(self, checkpoint: CheckpointFile, cdi: CdiFolder) -> None:
        self._checkpoint = checkpoint
        self._cdi = cdi
        self._claims: dict[str, PreparedClaim] = {}
        self.changing = asyncio.Lock()

    @property
    def claims(self) -> Mapping[str, PreparedClaim]:
        """By claim uid."""
        return dict(self._claims)

    def others(self, uid: str) -> list[PreparedClaim]:
        """All claims but one."""
        return [claim for claim in self._claims.values() if claim.uid != uid]

    def completed(self, uid: str) -> PreparedClaim | None:
        """The claim if its preparation is complete."""
        claim = self._claims.get(uid)
        return claim if claim is not None and claim.phase == "PrepareCompleted" else None

    async def load(self) -> dict[str, PreparedClaim] | None:
        """The claims on disk; None if they are unknown and must be rebuilt."""
        loaded = await asyncio.to_thread(self._checkpoint.load)
        if loaded.corrupt:
            structlog.get_logger().error(
                "the checkpoint could not be used; rebuilding it from allocated claims",
                why=loaded.corrupt,
                lost="which of the allocated claims were really prepared",
            )
            return None
        if loaded.fresh and self._cdi.claims():
            structlog.get_logger().warning("CDI files without a checkpoint; rebuilding it")
            return None
        if not loaded.fresh and loaded.boot_id != boot_id():
            structlog.get_logger().info("the node was restarted; writing CDI files again")
        return loaded.claims

    async def adopt(self, claims: Mapping[str, PreparedClaim]) -> None:
        """Restore claims of an earlier process; incomplete preparations are undone."""
        async with self.changing:
            for claim in claims.values():
                if claim.phase == "PrepareCompleted":
                    await self.write_file(claim)
                else:
                    await asyncio.to_thread(self._cdi.remove, claim.uid)
            await self._save(
                {uid: one for uid, one in claims.items() if one.phase == "PrepareCompleted"}
            )

    async def begin(self, claim: PreparedClaim) -> None:
        """Record that a claim's preparation starts. ``changing`` must be held."""
        await self._save(self._claims | {claim.uid: claim})

    async def complete(self, claim: PreparedClaim) -> PreparedClaim:
        """Write a claim's file, then record that it is complete."""
        await self.write_file(claim)
        done = msgspec.structs.replace(claim, phase="PrepareCompleted")
        async with self.changing:
            await self._save(self._claims | {done.uid: done})
        return done

    async def remove(self, uid: str) -> None:
        """Remove a claim, if it is known. ``changing`` must be held.

        The file is removed first: an entry without a file is repaired, a file without an entry is
        not.
        """
        await asyncio.to_thread(self._cdi.remove, uid)
        if uid in self._claims:
            await self._save({key: one for key, one in self._claims.items() if key != uid})

    async def write_file(self, claim: PreparedClaim) -> None:
        """Write a claim's CDI file if it is not there."""
        await asyncio.to_thread(self._cdi.write, claim.uid, claim.cdi)

    async def remove_files_except(self, known: set[str]) -> None:
        """Remove the files of claims that are not ``known``."""
        for uid in self._cdi.claims():
            if uid not in known:
                await asyncio.to_thread(self._cdi.remove, uid)

    async def _save(self, claims: dict[str, PreparedClaim]) -> None:
        await asyncio.to_thread(self._checkpoint.save, claims)
        self._claims = claims
