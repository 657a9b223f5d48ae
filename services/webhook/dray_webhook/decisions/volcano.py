"""Volcano's admission rules for PodGroups and Queues, for clusters without Volcano.

Sources: ``pkg/webhooks/admission/{podgroups,queues}`` of Volcano 1.15.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from dray.api.groups import DEFAULT_QUEUE, MAX_MEMBERS, GroupQueue
from dray.api.names import GANG_TIMEOUT
from dray.api.quantities import InvalidQuantityError, Quantity, parse_quantity
from dray.kube.convert_groups import queue_from
from dray.kube.ports import QUEUES
from dray.messages.rpc import Lookup
from dray.reasons import name_list
from dray.runtime.units import parse_duration
from dray_webhook.decisions.groups import short_timeout
from dray_webhook.decisions.jsonpatch import difference
from dray_webhook.decisions.pools import Installation
from dray_webhook.decisions.review import (
    DENIED,
    AdmissionAnswer,
    AdmissionRequest,
    Object,
    annotations_of,
)
from dray_webhook.decisions.view import View

_ROOT_QUEUE: Final = "root"
_KEPT: Final = (_ROOT_QUEUE, DEFAULT_QUEUE)
_Amounts = Mapping[str, Quantity]


def validate_group(
    request: AdmissionRequest, view: View, installation: Installation
) -> AdmissionAnswer:
    """The answer of /validate-groups."""
    if not installation.acts_for_volcano:
        return AdmissionAnswer()
    is_queue = request.kind.kind == QUEUES.kind
    group = request.object or {}
    if not is_queue and request.operation != "DELETE":
        # The queue may have been created a moment ago.
        question = Lookup(kind="queue", name=_queue_of(group))
        if question.name not in view.queues and question not in view.asked:
            return AdmissionAnswer(unresolved=(question,))
        if question in view.unanswered:
            return AdmissionAnswer()  # The group's status will show a missing queue.
    if request.operation == "DELETE":
        errors = list(_deletion(request.name, view)) if is_queue else []
    elif is_queue:
        errors = list(_queue(request.object or {}, view))
    else:
        errors = list(_pod_group(group, request.old_object, view))
    if not errors:
        return AdmissionAnswer(warnings=() if is_queue else _warnings(group))
    head = f'{request.kind.kind} "{request.name}" is refused: '
    return AdmissionAnswer(allowed=False, code=DENIED, message=head + "; ".join(errors))


def _warnings(group: Object) -> tuple[str, ...]:
    """Warnings about a PodGroup that are no reason to refuse it."""
    text = annotations_of(group).get(GANG_TIMEOUT)
    try:
        return short_timeout(parse_duration(str(text or "")))
    except ValueError:
        return ()


def mutate_group(
    request: AdmissionRequest, view: View, installation: Installation
) -> AdmissionAnswer:
    """The answer of /mutate-groups: a PodGroup without a queue joins its namespace's queue."""
    group = request.object or {}
    if not installation.acts_for_volcano or _queue_of(group) != DEFAULT_QUEUE:
        return AdmissionAnswer()
    question = Lookup(kind="namespace", name=request.namespace)
    if question not in view.asked:
        return AdmissionAnswer(unresolved=(question,))
    name = view.queue_names.get(question)
    if not name:
        return AdmissionAnswer()
    patched = {**group, "spec": {**(group.get("spec") or {}), "queue": name}}
    return AdmissionAnswer(patch=tuple(difference(group, patched)))


def _queue_of(group: Object) -> str:
    name: str = (group.get("spec") or {}).get("queue") or DEFAULT_QUEUE
    return name


def _pod_group(obj: Object, before: Object | None, view: View) -> Iterator[str]:
    spec: Object = obj.get("spec") or {}
    if (obj.get("metadata") or {}).get("deletionTimestamp"):
        return
    queue = _queue_of(obj)
    if before is None or _queue_of(before) != queue:
        yield from _joined(queue, view)
    if (least := int(spec.get("minMember") or 0)) > MAX_MEMBERS:
        yield (
            f"spec.minMember is {least}, but at most {MAX_MEMBERS} pods are decided together: "
            "make several groups, or lower it"
        )
    for task, number in (spec.get("minTaskMember") or {}).items():
        if int(number) < 0:
            yield f"spec.minTaskMember.{task} is {number}: expected 0 or more"
    yield from _topology("spec.networkTopology", spec.get("networkTopology"))
    for index, policy in enumerate(spec.get("subGroupPolicy") or ()):
        where = f"spec.subGroupPolicy[{index}]"
        yield from _topology(f"{where}.networkTopology", policy.get("networkTopology"))


def _joined(name: str, view: View) -> Iterator[str]:
    queue = view.queues.get(name)
    if queue is None:
        yield (
            f'spec.queue is "{name}", and there is no such Queue; expected one of: '
            f"{name_list(sorted(view.queues)) or 'none exists'}"
        )
    elif not queue.is_open:
        yield f'spec.queue is "{name}", which is {queue.state}: it takes no groups until it is open'
    elif name == _ROOT_QUEUE or any(one.parent == name for one in view.queues.values()):
        yield f'spec.queue is "{name}", which has child queues: name one of these'


def _topology(where: str, topology: Object | None) -> Iterator[str]:
    found = topology or {}
    if found.get("highestTierAllowed") is not None and found.get("highestTierName"):
        yield f"{where} has highestTierAllowed and highestTierName: leave one of them out"


def _deletion(name: str, view: View) -> Iterator[str]:
    if name in _KEPT:
        yield "groups without spec.queue need it"
        return
    children = sorted(one.name for one in view.queues.values() if one.parent == name)
    if children:
        yield f"it has child queues: {name_list(children)}; delete these first"
    queue = view.queues.get(name)
    if queue is not None and queue.pods:
        yield f"{queue.pods} pods of its groups run: close it, and wait until they have ended"


def _queue(obj: Object, view: View) -> Iterator[str]:
    if (obj.get("metadata") or {}).get("deletionTimestamp"):
        return
    queue = queue_from(obj)
    try:
        yield from _shares(queue)
        yield from _place(queue, view)
    except InvalidQuantityError as error:
        yield f"an amount can't be read: {error}"


def _shares(queue: GroupQueue) -> Iterator[str]:
    """``guarantee`` ≤ ``deserved`` ≤ ``capability``, for each resource that both name."""
    guarantee, deserved = _read(queue.guarantee), _read(queue.deserved)
    capability = _read(queue.capability)
    yield from _exceeding("spec.deserved", deserved, "spec.capability", capability)
    yield from _exceeding("spec.guarantee.resource", guarantee, "spec.capability", capability)
    if deserved:
        yield from _exceeding("spec.guarantee.resource", guarantee, "spec.deserved", deserved)
    elif guarantee and queue.parent:
        yield "spec.guarantee is set, and spec.deserved is not: expected at least as much of it"


def _place(queue: GroupQueue, view: View) -> Iterator[str]:
    """The parent queue exists, and has at least as much as its children together."""
    if queue.name == _ROOT_QUEUE or not queue.parent:
        return
    above = {queue.name}
    name = queue.parent
    while name and name != _ROOT_QUEUE:
        if name in above:
            yield f'spec.parent is "{queue.parent}", which is below the queue itself'
            return
        above.add(name)
        parent = view.queues.get(name)
        if parent is None:
            yield f'spec.parent is "{name}", and there is no such Queue: create it first'
            return
        name = parent.parent
    parent = view.queues.get(queue.parent)
    if parent is None:
        return
    if parent.pods:
        yield (
            f'spec.parent is "{parent.name}", whose own groups have {parent.pods} running pods: '
            "only queues without child queues have groups"
        )
    siblings = [
        one for one in view.queues.values() if one.parent == parent.name and one.name != queue.name
    ]
    for field in ("deserved", "guarantee"):
        whole = _read(getattr(parent, field))
        parts = [_read(getattr(one, field)) for one in (*siblings, queue)]
        for resource, limit in whole.items():
            asked = sum(part[resource].nano for part in parts if resource in part)
            if asked > limit.nano:
                yield (
                    f'{field} of all queues below "{parent.name}" is {Quantity(asked)} of '
                    f"{resource}, more than its own {limit}"
                )


def _exceeding(less: str, amounts: _Amounts, more: str, limits: _Amounts) -> Iterator[str]:
    for resource, amount in amounts.items():
        limit = limits.get(resource)
        if limit is not None and amount > limit:
            yield f"{less} has {amount} of {resource}, more than {limit} of {more}"


def _read(amounts: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: parse_quantity(text) for name, text in amounts.items()}
