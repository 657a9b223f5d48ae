"""The webhook's shells and the claim-controller's side on a bus in memory."""

import asyncio

import msgspec

from dray.api.names import BASE_TEMPLATE
from dray.api.pods import Policy, Pool
from dray.bus.backlog import Backlog
from dray.bus.memory import MemoryBus
from dray.bus.ports import Request
from dray.messages.base import encode
from dray.messages.facts import ClusterObserved, Synced
from dray.messages.rpc import (
    DERIVE_SUBJECT,
    LOOKUP_SUBJECT,
    Derive,
    DeriveReply,
    Lookup,
    LookupReply,
)
from dray_webhook.decisions.pools import Installation
from dray_webhook.service.derived_templates import DerivedTemplates
from dray_webhook.service.facts_cache import FactsCache
from dray_webhook.service.handler import AdmissionHandler

POOL = Pool(name="shared", uid="1", template="on")
POLICY = Policy(name="on", uid="2", dra_enabled=True, claim_template=BASE_TEMPLATE)


class Stack:
    """The webhook's shells on one bus, the claim-controller's side on another connection."""

    def __init__(self) -> None:
        self.controller = MemoryBus()
        self.bus = self.controller.peer()
        self.cache = FactsCache(self.bus)
        self.backlog = Backlog(self.bus, capacity=3, what="pod.requested")
        self.webhook = self.new_webhook()
        self.asked: list[Lookup] = []
        self.derived: list[Derive] = []
        """Templates that were asked for."""
        self.exists: dict[Lookup, LookupReply] = {}
        self.revision = 0
        self.tasks: list[asyncio.Task[None]] = []

    def new_webhook(self, **changes):
        return AdmissionHandler(
            self.cache,
            self.backlog,
            Installation("dray-system"),
            source="/webhook/a",
            **{
                "lookup_timeout_s": 0.2,
                "templates": DerivedTemplates(self.bus),
                **changes,
            },
        )

    async def publish(self, fact, **fields):
        self.revision += 1
        await self.controller.publish(
            encode(fact(revision=self.revision, **fields), source="/claim-controller/a")
        )

    async def sync(self):
        await self.publish(ClusterObserved, version="v1.36.3")
        await self.publish(Synced, instance="a")

    async def answer_lookups(self):
        async def answer(request: Request) -> bytes:
            lookup = msgspec.json.decode(request.payload, type=Lookup)
            self.asked.append(lookup)
            return msgspec.json.encode(self.exists.get(lookup, LookupReply()))

        serving = self.controller.serve(LOOKUP_SUBJECT, answer, queue="claim-controller")
        self.tasks.append(asyncio.create_task(serving))
        await asyncio.sleep(0)

    async def make_templates(self, error: str = "", held: asyncio.Event | None = None):
        """``held``: answers wait for it."""

        async def answer(request: Request) -> bytes:
            self.derived.append(msgspec.json.decode(request.payload, type=Derive))
            if held is not None:
                await held.wait()
            return msgspec.json.encode(DeriveReply(error=error))

        serving = self.controller.serve(DERIVE_SUBJECT, answer, queue="claim-controller")
        self.tasks.append(asyncio.create_task(serving))
        await asyncio.sleep(0)

    async def until(self, condition):
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110 - the view has no event for each change
                await asyncio.sleep(0.001)
