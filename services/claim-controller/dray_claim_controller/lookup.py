"""Answers the webhook's one question before a negative answer, from a live GET."""

import msgspec

from dray.bus.ports import Request
from dray.domain.errors import DrayError
from dray.kube.convert import policy_from, pool_from
from dray.kube.ports import POLICIES, POOLS, TEMPLATES, Kube, NotFoundError
from dray.messages.rpc import Lookup, LookupReply
from dray_claim_controller.observe.facts import template_fact

QUEUE = "claim-controller"


class LookupServer:
    """Handles ``dray.rpc.lookup``; every instance answers, leading or not."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def answer(self, request: Request) -> bytes:
        """The encoded LookupReply to an encoded Lookup."""
        try:
            asked = msgspec.json.decode(request.payload, type=Lookup)
        except msgspec.MsgspecError as error:
            return msgspec.json.encode(LookupReply(error=f"the question can't be read: {error}"))
        return msgspec.json.encode(await self.look_up(asked))

    async def look_up(self, asked: Lookup) -> LookupReply:
        """What the API server holds now."""
        try:
            return await self._found(asked)
        except NotFoundError:
            return LookupReply()
        except DrayError as error:
            return LookupReply(error=str(error))

    async def _found(self, asked: Lookup) -> LookupReply:
        match asked.kind:
            case "pool":
                return LookupReply(pool=pool_from(await self._kube.get(POOLS, asked.name)))
            case "policy":
                return LookupReply(policy=policy_from(await self._kube.get(POLICIES, asked.name)))
            case "template":
                obj = await self._kube.get(TEMPLATES, asked.name, asked.namespace)
                return LookupReply(template=template_fact(obj))
