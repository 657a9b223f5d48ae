"""The simulation notices a dray that serves requests about one object as it once did.

Each mutation takes one protection of all others away, and is met by requests that are answered in
the same way each time; it is noticed within a few seeds.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

import pytest
from tests.mutations import Mutation

from dray.api.claims import Claim
from dray.bus.ports import MessageTooLargeError
from dray.kube.ports import KubeError, NotFoundError, RefusedError
from dray_claim_controller.execution.decisions.next_step import AwaitDevices
from dray_claim_controller.execution.pod_execution import PodExecution
from dray_claim_controller.garbage.reconciler import GarbageReconciler
from dray_claim_controller.logs.epochs import Epochs
from dray_claim_controller.publication.publisher import Publisher
from dray_claim_controller.templates.reconciler import TemplateReconciler
from dray_claim_controller.work_queue import FairSlots
from tools.simulation.fault_injector import CALM
from tools.simulation.refusals import cases
from tools.simulation.run import Size, simulate

SEEDS = range(16)


@contextmanager
def executor_keeping_slots() -> Iterator[None]:
    """An execution holds its slot while it rests between two tries."""

    async def carry_out(self: Any) -> AwaitDevices | None:
        async with self._parts.slots.held(self._execution.decision.namespace):
            while self._is_newest():
                rest = await self._go_on()
                if rest is None or isinstance(rest, AwaitDevices):
                    return rest
                if rest.rest_s:
                    await self._rest(rest.rest_s)
                elif not await self._informers.changed(self._parts.watch_timeout_s):
                    self._is_behind = True
        return None

    with mock.patch.object(PodExecution, "_carry_out", carry_out), slots_that_stay_taken():
        yield


def slots_that_stay_taken() -> AbstractContextManager[Any]:
    """Work that takes long counts for everybody."""

    async def nothing(self: FairSlots, at_s: float) -> None:
        return

    return mock.patch.object(FairSlots, "_find_slow", nothing)


def epochs_that_need_every_void() -> AbstractContextManager[Any]:
    """A void that is refused ends the term that begins an epoch."""

    async def void(self: Any, claim: Claim, attempt: int) -> None:
        seen = self._informers.cache.claims.get(claim.uid)
        if seen is not None and seen.claim.allocation is None:
            try:
                await self._voids._write(seen, attempt, is_last_try=True)
            except NotFoundError:
                return

    return mock.patch.object(Epochs, "_void", void)


def devices_that_are_never_released() -> AbstractContextManager[Any]:
    """An attempt holds its devices until its claim says that it is void."""
    return mock.patch(
        "dray_claim_controller.cache.abandoned_attempts.may_be_committed", return_value=True
    )


def templates_that_are_forgotten() -> AbstractContextManager[Any]:
    """A template that is refused is not tried again."""
    serve = TemplateReconciler._serve

    async def serve_once(self: Any, template: Any) -> None:
        try:
            await serve(self, template)
        except RefusedError:
            self._waiting.pop(template, None)

    return mock.patch.object(TemplateReconciler, "_serve", serve_once)


def templates_one_after_the_other() -> AbstractContextManager[Any]:
    """A template that can't be made holds up all others."""
    serve, turn = TemplateReconciler._serve, asyncio.Lock()

    async def serve_in_turn(self: Any, template: Any) -> None:
        async with turn:
            try:
                await serve(self, template)
            except KubeError:
                await asyncio.sleep(5.0)
                raise

    return mock.patch.object(TemplateReconciler, "_serve", serve_in_turn)


def collector_that_ends_the_term() -> AbstractContextManager[Any]:
    """A template that can't be deleted ends the term."""

    async def run(self: Any) -> None:
        while True:
            self.scan()
            for name in self._due:
                await self._delete(name)
            await self._clock.sleep(self._every_s)

    return mock.patch.object(GarbageReconciler, "run", run)


@contextmanager
def watches_that_end() -> Iterator[None]:
    """An object that can't be read ends the watch."""
    with (
        mock.patch("dray_claim_controller.cache.resources.UNREADABLE", ()),
        mock.patch("dray_claim_controller.cache.converted_objects.UNREADABLE", ()),
        mock.patch("dray.kube.convert_claims.UNREADABLE", ()),
    ):
        yield


def facts_that_end_the_term() -> AbstractContextManager[Any]:
    """A fact that is too large for the bus ends the term."""

    async def fail(self: Any, key: Any, revision: int, error: MessageTooLargeError) -> None:
        raise error

    return mock.patch.object(Publisher, "_publish_reduced", fail)


def is_noticed(mutation: Mutation, kind: str, answer: str) -> bool:
    case = next(one for one in cases() if str(one) == f"{kind}: {answer}")
    size = Size(pods=8, faults=2, seconds=22.0, only=CALM, case=case)
    with mutation():
        return any(simulate(seed, size).failures for seed in SEEDS)


@pytest.mark.parametrize(
    ("mutation", "kind", "answer"),
    [
        (executor_keeping_slots, "patch a claim's status", "500"),
        (epochs_that_need_every_void, "patch a claim", "422"),
        (devices_that_are_never_released, "patch a claim", "403"),
        (templates_that_are_forgotten, "create a template", "403"),
        (templates_one_after_the_other, "create a template", "500"),
        (watches_that_end, "read a node", "shape 0"),
        (watches_that_end, "read a claim", "shape 1"),
        (facts_that_end_the_term, "publish a large slice", "too large"),
        (collector_that_ends_the_term, "delete a template", "403"),
    ],
)
def test_what_one_object_once_did_to_all_others_is_noticed(
    mutation: Mutation, kind: str, answer: str
) -> None:
    assert is_noticed(mutation, kind, answer)
