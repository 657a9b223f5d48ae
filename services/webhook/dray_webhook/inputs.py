"""What an answer followed from, recorded and read back: for ``dray record`` and ``dray replay``."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from dray.bus.backlog import Backlog
from dray.messages.base import encode
from dray.messages.inputs import MUTATE_POD, LookedUp, Reviewed
from dray.messages.rpc import Lookup, LookupReply
from dray.recording.redaction import redacted
from dray_webhook.claims import mutate_claim, validate_claim
from dray_webhook.injection import Ids
from dray_webhook.mutation import admit_pod, refuse_unadmitted
from dray_webhook.overlap import validate_pool
from dray_webhook.pools import Rules
from dray_webhook.review import Answer, Request, write_review
from dray_webhook.view import View

VALIDATE_POD, MUTATE_CLAIM, VALIDATE_CLAIM = "validate-pods", "mutate-claims", "validate-claims"
VALIDATE_POOL = "validate-pools"
PATHS = (MUTATE_POD, VALIDATE_POD, MUTATE_CLAIM, VALIDATE_CLAIM, VALIDATE_POOL)


def decide(path: str, request: Request, view: View, rules: Rules, ids: Ids) -> Answer:
    """The one seam: the answer to a review of ``path``. Pure.

    Raises:
        KeyError: no such path.
    """
    match path:
        case "mutate-pods":
            return admit_pod(request, view, rules, ids)
        case "validate-pods":
            return refuse_unadmitted(request)
        case "mutate-claims":
            return mutate_claim(request)
        case "validate-claims":
            return validate_claim(request, view)
        case "validate-pools":
            return validate_pool(request, view)
    raise KeyError(path)


class Inputs:
    """Publishes every review with all that its answer followed from."""

    def __init__(self, backlog: Backlog, instance: str, rules: Rules) -> None:
        self._backlog = backlog
        self._instance = instance
        self._rules = rules

    def record(
        self,
        request: Request,
        view: View,
        ids: Ids,
        known: Mapping[Lookup, LookupReply],
        answer: Answer,
        *,
        path: str = MUTATE_POD,
        facts_created: str = "",
    ) -> None:
        """Publish it soon; the answer does not wait."""
        reviewed = Reviewed(
            instance=self._instance,
            uid=request.uid,
            path=path,
            facts_sequence=view.position,
            facts_created=facts_created,
            caught_up=view.caught_up,
            request=_redacted(request, path).model_dump(by_alias=True),
            redacted=True,
            traceparent=ids.traceparent,
            looked_up=tuple(LookedUp(question=q, answer=a) for q, a in known.items()),
            settings=asdict(self._rules),
            answer=write_review(request.uid, answer),
        )
        self._backlog.offer(
            encode(reviewed, source=f"/webhook/{self._instance}", correlation_id=ids.request_id)
        )


def _redacted(request: Request, path: str) -> Request:
    plural = "pods" if path in (MUTATE_POD, VALIDATE_POD) else "resourceclaims"
    objects = {"object": request.object, "old_object": request.old_object}
    kept = {name: obj and redacted(plural, obj) for name, obj in objects.items()}
    return request.model_copy(update=kept)


def answer_again(reviewed: Reviewed, view: View) -> dict[str, Any]:
    """The AdmissionReview that this code answers, where ``view`` folded the same facts.

    Raises:
        KeyError: a path that this version does not know.
    """
    request = Request.model_validate(reviewed.request)
    known = {one.question: one.answer for one in reviewed.looked_up}
    rules = msgspec.convert(reviewed.settings, Rules)
    ids = Ids(reviewed.uid, reviewed.traceparent)
    seen = view.with_answers(known) if known else view
    return write_review(request.uid, decide(reviewed.path, request, seen, rules, ids))
