"""Records reviews with all inputs of their answers, for ``dray record`` and ``dray replay``."""

from collections.abc import Mapping
from dataclasses import asdict

import msgspec

from dray.bus.backlog import Backlog
from dray.kube.ports import POD_GROUPS, QUEUES
from dray.messages.base import encode
from dray.messages.inputs import MUTATE_POD, LookedUp, Reviewed
from dray.messages.rpc import Lookup, LookupReply
from dray.recording.redaction import redacted
from dray_webhook.decisions.dispatch import MUTATE_GROUP, VALIDATE_GROUP, VALIDATE_POD, decide
from dray_webhook.decisions.injection import AdmissionIds
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import AdmissionAnswer, AdmissionRequest, write_review
from dray_webhook.decisions.view import View


class ReviewRecorder:
    """Publishes every review with all inputs of its answer."""

    def __init__(self, backlog: Backlog, instance: str, installation: Installation) -> None:
        self._backlog = backlog
        self._instance = instance
        self._installation = installation

    def record(
        self,
        request: AdmissionRequest,
        view: View,
        ids: AdmissionIds,
        known: Mapping[Lookup, LookupReply],
        answer: AdmissionAnswer,
        *,
        path: str = MUTATE_POD,
        facts_created: str = "",
    ) -> None:
        """Queue the review for publication; the answer does not wait for it."""
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
            settings=asdict(self._installation),
            answer=write_review(request.uid, answer),
        )
        self._backlog.offer(
            encode(reviewed, source=f"/webhook/{self._instance}", correlation_id=ids.request_id)
        )


def _redacted(request: AdmissionRequest, path: str) -> AdmissionRequest:
    plural = "pods" if path in (MUTATE_POD, VALIDATE_POD) else "resourceclaims"
    if path in (MUTATE_GROUP, VALIDATE_GROUP):
        plural = QUEUES.plural if request.kind.kind == QUEUES.kind else POD_GROUPS.plural
    objects = {"object": request.object, "old_object": request.old_object}
    kept = {name: obj and redacted(plural, obj) for name, obj in objects.items()}
    return request.model_copy(update=kept)


def replay_answer(reviewed: Reviewed, view: View) -> AdmissionAnswer:
    """The answer of this version; ``view`` has the same facts applied. It is ``unresolved`` if this
    version needs a look-up that the recording version did not make.

    Raises:
        KeyError: a path that this version does not know.
    """
    request = AdmissionRequest.model_validate(reviewed.request)
    known = {one.question: one.answer for one in reviewed.looked_up}
    installation = msgspec.convert(reviewed.settings, Installation)
    ids = AdmissionIds(reviewed.uid, reviewed.traceparent)
    if known:
        view = view.with_answers(known)
    return decide(reviewed.path, request, view, installation, ids)
