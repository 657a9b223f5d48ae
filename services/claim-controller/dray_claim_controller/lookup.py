"""Answers the webhook's questions: from a live GET before the webhook gives a negative answer, and
from the watched objects which nodes a pool does not get."""

from collections.abc import Callable
from itertools import islice

import msgspec

from dray.api.errors import DrayError
from dray.api.groups import MAX_ENTRIES, QUEUE_NAME
from dray.api.quantities import parse_quantity
from dray.bus.ports import Request
from dray.kube.convert import UNREADABLE, policy_from, pool_from, why_unreadable
from dray.kube.convert_groups import pod_group_from, queue_from
from dray.kube.convert_metadata import annotation
from dray.kube.ports import (
    NAMESPACES,
    POD_GROUPS,
    POLICIES,
    POOLS,
    QUEUES,
    TEMPLATES,
    Kube,
    NotFoundError,
)
from dray.messages.facts import TemplateObserved
from dray.messages.rpc import Lookup, LookupReply, Overlap
from dray_claim_controller.cache.object_cache import ObjectCache
from dray_claim_controller.facts.build import template_fact
from dray_claim_controller.facts.membership import nodes_of_others
from dray_claim_controller.facts.size_limit import fit_to_limit, size_bytes, too_large
from dray_claim_controller.pools.decisions.usage import allocated_claims, pods_of

QUEUE = "claim-controller"
_MOST_NODES = 3
"""Named in an answer: a warning has no room for more."""


class LookupServer:
    """Handles ``dray.rpc.lookup``; every instance answers, leading or not."""

    def __init__(
        self,
        kube: Kube,
        cache: ObjectCache,
        *,
        limit_bytes: Callable[[], int | None] = lambda: None,
    ) -> None:
        """``limit_bytes``: the longest answer that the bus takes; None: not known."""
        self._kube = kube
        self._cache = cache
        self._limit_bytes = limit_bytes

    async def answer(self, request: Request) -> bytes:
        """The encoded LookupReply to an encoded Lookup."""
        try:
            asked = msgspec.json.decode(request.payload, type=Lookup)
        except msgspec.MsgspecError as error:
            return msgspec.json.encode(LookupReply(error=f"the request can't be read: {error}"))
        return msgspec.json.encode(await self.look_up(asked))

    async def look_up(self, asked: Lookup) -> LookupReply:
        """What the API server holds now."""
        try:
            return await self._found(asked)
        except NotFoundError:
            return LookupReply()
        except DrayError as error:
            return LookupReply(error=str(error))
        except UNREADABLE as error:
            return LookupReply(error=f"{asked.kind} {asked.name} {why_unreadable(error)}")

    async def _found(self, asked: Lookup) -> LookupReply:
        match asked.kind:
            case "pool" if not asked.name:
                pools = [pool_from(one) for one in (await self._kube.list(POOLS)).objects]
                default = [pool for pool in pools if pool.default]
                return LookupReply(pool=default[0] if len(default) == 1 else None)
            case "pool":
                return LookupReply(pool=pool_from(await self._kube.get(POOLS, asked.name)))
            case "policy":
                return LookupReply(policy=policy_from(await self._kube.get(POLICIES, asked.name)))
            case "template":
                obj = await self._kube.get(TEMPLATES, asked.name, asked.namespace)
                limit_bytes = self._limit_bytes()
                fact = template_fact(obj)
                reduced = fact if limit_bytes is None else fit_to_limit(fact, limit_bytes)
                if not isinstance(reduced, TemplateObserved):
                    return LookupReply(error=too_large(size_bytes(fact), limit_bytes or 0))
                return LookupReply(template=reduced)
            case "queue":
                return LookupReply(queue=queue_from(await self._kube.get(QUEUES, asked.name)))
            case "namespace":
                found = await self._kube.get(NAMESPACES, asked.name)
                return LookupReply(queue_name=annotation(found, QUEUE_NAME))
            case "group":
                found = await self._kube.get(POD_GROUPS, asked.name, asked.namespace)
                amounts = pod_group_from(found).min_resources
                asked_for = (name for name, text in amounts.items() if parse_quantity(text).nano)
                return LookupReply(group_resources=tuple(islice(asked_for, MAX_ENTRIES)))
            case "overlap":
                return self._overlap(asked)
            case "use":
                if not self._cache.synced:
                    return LookupReply(error="not everything was listed yet")
                claims = allocated_claims(self._cache, asked.name)
                return LookupReply(used_by=pods_of(self._cache, claims))

    def _overlap(self, asked: Lookup) -> LookupReply:
        if not self._cache.synced:
            return LookupReply(error="not everything was listed yet")
        known = self._cache.plain[POOLS.plural].get(asked.name) or {}
        selector = None if asked.selector is None else dict(asked.selector)
        spec = {**(known.get("spec") or {}), "nodeSelector": selector}
        pool = {"metadata": known.get("metadata") or {"name": asked.name}, "spec": spec}
        found = sorted(nodes_of_others(self._cache, pool))
        return LookupReply(overlap=Overlap(count=len(found), nodes=tuple(found[:_MOST_NODES])))
