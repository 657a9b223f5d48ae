"""A state of everything, and what may happen next in it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from dray.domain.claims import last_attempt_before
from dray.kube.ports import Object
from dray.messages.decisions import Decided, Released
from dray_sandbox.explorer.bound import Bound, Publication
from dray_sandbox.explorer.executors import Executors
from dray_sandbox.explorer.replicas import EPOCH, Appended, Folded, Replicas
from dray_sandbox.explorer.server import Server
from dray_sandbox.explorer.subjects import TICK_S, Subjects

UNCHAINED, UNSENT, ORPHAN = -1, -2, -3
"""What an append must follow: nothing, one that is still before it, one that was refused."""


class Sent(NamedTuple):
    """An append on its way: the record, the last sequence it expects, and the sequence of the
    record that it must follow directly."""

    record: int
    expected: int
    after: int


class ReplicaAt(NamedTuple):
    """A replica: its state, and what it has sent. It has read all that there is."""

    local: int
    sent: tuple[Sent, ...] = ()


class Spent(NamedTuple):
    """How much of the bound's harms was done."""

    crashes: int = 0
    lost_answers: int = 0
    early_ticks: int = 0
    deleted_pods: int = 0
    lost_nodes: int = 0
    hasty_voids: int = 0
    closing_ticks: int = 0


class State(NamedTuple):
    """Everything. Numbers are those of ``Subjects``, ``Replicas`` and ``Executors``."""

    objects: tuple[tuple[int, ...], ...]
    """Per subject, its versions from the first to the newest."""
    published: tuple[int, ...]
    """Per subject, which of its versions is the last that was published."""
    log: tuple[tuple[int, int], ...]
    """Writer and record."""
    replicas: tuple[ReplicaAt, ...]
    voids: tuple[tuple[int, int], ...]
    """Commands ever sent: claim and attempt. Each may arrive at any time, and again."""
    spent: Spent


class Action(NamedTuple):
    """What happened: its kind, who or what, and what it made."""

    kind: str
    who: int = -1
    what: int = -1
    why: str = ""


class Next(NamedTuple):
    """A step: harm is what need not happen."""

    action: Action
    state: State
    harm: bool
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bus:
    """What the bus promises; a mutation takes it away."""

    fenced: bool = True
    """An append is refused whose writer has not folded the log's last record."""
    chained: bool = True
    """An append is refused if the one that it builds on was."""


class World:
    """The steps of a bound."""

    def __init__(self, bound: Bound, bus: Bus | None = None) -> None:
        self.bound = bound
        self.subjects = Subjects(bound)
        self.server = Server(self.subjects)
        self.replicas = Replicas(self.subjects)
        self.executors = Executors(self.subjects, self.server, bound)
        self._bus = bus or Bus()
        self._decisions: dict[int, tuple[int, ...]] = {}
        self._committed: dict[int, frozenset[tuple[str, int]]] = {}
        self._edited: dict[tuple[str, int], int] = {}

    def first(self) -> State:
        """Pods and claims are there, and nobody has done anything."""
        one = ReplicaAt(self.replicas.begin())
        objects = tuple((version,) for version in self.subjects.first)
        published = (0,) * len(objects)
        return State(objects, published, ((-1, self.replicas.opened),), (one, one), (), Spent())

    def next(self, state: State) -> list[Next]:
        """Everything that may happen; once only time is left to pass, one way on is enough."""
        if state.spent.closing_ticks:
            return [*islice(self._orderly(state), 1)]
        found = [
            *self._executions(state),
            *self._void_commands(state),
            *self._creations(state),
            *self._collections(state),
            *self._publications(state),
        ]
        for index in range(len(state.replicas)):
            found += self._acts(state, index)
            found += self._arrivals(state, index)
            found += self._crashes(state, index)
        found += self._hasty_voids(state)
        found += self._deletions(state)
        found += self._losses(state)
        found += self._ticks(state, any(not step.harm for step in found))
        return found

    def _orderly(self, state: State) -> Iterator[Next]:
        """What comes to rest soonest."""
        for index in range(len(state.replicas)):
            yield from self._arrivals(state, index)
        yield from self._void_commands(state)
        yield from self._executions(state)
        yield from self._collections(state)
        yield from self._publications(state)
        yield from self._acts(state, 0)
        yield from self._ticks(state, busy=False)

    # --- replicas ----------------------------------------------------------------------

    def _acts(self, state: State, index: int) -> Iterator[Next]:
        """A replica decides, if there is anything to decide."""
        one = state.replicas[index]
        if len(one.sent) > self.bound.ahead:
            return
        acted = self.replicas.act(one.local, len(state.log))
        voids = tuple(sorted({*state.voids, *acted.voids}))
        if acted.appends or acted.alarms or voids != state.voids:
            sent = (*one.sent, *(_sent(append) for append in acted.appends))
            after = _with(state._replace(voids=voids), index, ReplicaAt(acted.local, sent))
            yield Next(Action("act", index), after, False, acted.alarms)

    def _hasty_voids(self, state: State) -> Iterator[Next]:
        """A replica that has not read the log's last records asks for claims to be voided."""
        if state.spent.hasty_voids >= self.bound.hasty_voids:
            return
        spent = state.spent._replace(hasty_voids=state.spent.hasty_voids + 1)
        for end in range(1, len(state.log)):
            acted = self.replicas.act(self._fresh(state, end), end)
            voids = tuple(sorted({*state.voids, *acted.voids}))
            if voids != state.voids:
                after = state._replace(voids=voids, spent=spent)
                yield Next(Action("hasty", what=end), after, True)

    def _arrivals(self, state: State, index: int) -> Iterator[Next]:
        """The replica's oldest append reaches the bus; its answer arrives, or not."""
        one = state.replicas[index]
        if not one.sent:
            return
        head, rest = one.sent[0], one.sent[1:]
        if self._refuses(head, len(state.log)):
            sent = tuple(other._replace(after=ORPHAN) for other in rest)
            heard = head.after == ORPHAN
            local = one.local if heard else self.replicas.failed(one.local)
            made = _with(state, index, ReplicaAt(local, rest if heard else sent))
            yield Next(Action("refused", index, head.record), made, False)
            return
        if self._goes_on_too_long(head.record):
            yield Next(Action("cut"), state, False)
            return
        stored = self._stored(state, index)
        yield Next(Action("stored", index, head.record), stored, False)
        if state.spent.lost_answers < self.bound.lost_answers:
            spent = state.spent._replace(lost_answers=state.spent.lost_answers + 1)
            after = stored.replicas[index]
            lost = after._replace(local=self.replicas.failed(after.local))
            made = _with(stored._replace(spent=spent), index, lost)
            yield Next(Action("stored unheard", index, head.record), made, True)

    def _stored(self, state: State, index: int) -> State:
        """With the replica's oldest append as the log's last record, read by all.

        Others whose appends are sure to be refused now hear of it at once: until they do they
        could only send more that is refused.
        """
        head, *rest = state.replicas[index].sent
        log = (*state.log, (index, head.record))
        end = len(log)
        replicas = []
        for number, one in enumerate(state.replicas):
            local, sent = one.local, one.sent
            if number == index:
                if rest and rest[0].after == UNSENT:
                    rest[0] = rest[0]._replace(after=end)
                sent = tuple(rest)
            elif self._bus.fenced and self._bus.chained and sent:
                local, sent = self.replicas.failed(local), ()
            local = self.replicas.read(local, (), ((end, head.record, number == index),))
            replicas.append(ReplicaAt(local, sent))
        return self._rested(state._replace(log=log, replicas=tuple(replicas)))

    def _rested(self, state: State) -> State:
        """Replicas that have nothing to say now have seen to it."""
        end, known = len(state.log), set(state.voids)
        replicas = []
        for one in state.replicas:
            acted = self.replicas.act(one.local, end)
            quiet = not (acted.appends or acted.alarms or set(acted.voids) - known)
            replicas.append(one._replace(local=acted.local) if quiet else one)
        return state._replace(replicas=tuple(replicas))

    def _goes_on_too_long(self, record: int) -> bool:
        decided = map(self.executors.decisions.__getitem__, self._decisions_of(record))
        most = last_attempt_before(EPOCH) + self.bound.attempts
        return any(claim.attempt > most for one in decided for claim in one.claims)

    def _refuses(self, head: Sent, end: int) -> bool:
        late = self._bus.fenced and head.expected != end
        builds_on_another = self._bus.chained and head.after not in (UNCHAINED, end)
        return late or builds_on_another

    def _crashes(self, state: State, index: int) -> Iterator[Next]:
        if state.spent.crashes < self.bound.crashes:
            spent = state.spent._replace(crashes=state.spent.crashes + 1)
            after = ReplicaAt(self._fresh(state, len(state.log)))
            made = self._rested(_with(state._replace(spent=spent), index, after))
            yield Next(Action("crash", index), made, True)

    def _fresh(self, state: State, end: int) -> int:
        """A replica that has just read what is published, and the log up to there."""
        start = self.replicas.configured
        published = sum(state.published)
        changed = [subject for subject, at in enumerate(state.published) if at]
        facts = tuple(
            (
                start + published - left,
                subject,
                state.objects[subject][state.published[subject]],
                self._lived(state.objects[subject]),
            )
            for left, subject in zip(range(len(changed) - 1, -1, -1), changed, strict=True)
        )
        return self.replicas.restarted(facts, _records(state, -2, 0, end))

    # --- facts -------------------------------------------------------------------------

    def _publications(self, state: State) -> Iterator[Next]:
        """Facts overtake each other as far as the bound says, and are read by all."""
        if self.bound.publication is Publication.IN_ORDER:
            return
        news = self._news(state)
        parts: list[tuple[int, ...]]
        if self.bound.publication is Publication.BY_OBJECT:
            parts = [(one,) for one in news]
        else:
            kinds = dict.fromkeys(self.subjects.all[one].kind for one in news)
            parts = [
                tuple(one for one in news if self.subjects.all[one].kind is kind) for kind in kinds
            ]
        for part in parts:
            yield Next(Action("publish", part[0]), self._publish(state, part), False)

    def _news(self, state: State) -> tuple[int, ...]:
        return tuple(
            subject
            for subject, history in enumerate(state.objects)
            if state.published[subject] < len(history) - 1
        )

    def _publish(self, state: State, subjects: tuple[int, ...]) -> State:
        """The newest version of each of these subjects. A fact's sequence is the sum of what is
        published: it grows with each, and is the same whatever the order was."""
        facts, published = [], list(state.published)
        for subject in subjects:
            history = state.objects[subject]
            published[subject] = len(history) - 1
            sequence = self.replicas.configured + sum(published)
            facts.append((sequence, subject, history[-1], self._lived(history)))
        replicas = tuple(
            one._replace(local=self.replicas.read(one.local, tuple(facts), ()))
            for one in state.replicas
        )
        return self._rested(state._replace(published=tuple(published), replicas=replicas))

    def _lived(self, history: tuple[int, ...]) -> int:
        """The version that a tombstone is made of."""
        return next(one for one in reversed(history) if one != self.subjects.gone)

    def _changed(self, state: State, subject: int, version: int) -> State:
        """With a new version of a subject."""
        objects = state.objects
        history = (*objects[subject], version)
        made = state._replace(objects=(*objects[:subject], history, *objects[subject + 1 :]))
        if self.bound.publication is Publication.IN_ORDER:
            return self._publish(made, (subject,))
        return made

    # --- executors and the server --------------------------------------------------------

    def _executions(self, state: State) -> Iterator[Next]:
        for number in self.decided(state):
            committed = self._called_committed(state, number)
            for write in self.executors.writes(number, committed, state.objects):
                action = Action(write.what, write.subject, number, write.why)
                yield Next(action, self._changed(state, write.subject, write.version), False)

    def decided(self, state: State) -> list[int]:
        """Every decision that the log holds, in order."""
        return [number for _, record in state.log for number in self._decisions_of(record)]

    def _decisions_of(self, record: int) -> tuple[int, ...]:
        known = self._decisions.get(record)
        if known is None:
            read = self.replicas.records[record]
            pods = read.pods if isinstance(read, Decided) else ()
            known = self._decisions[record] = tuple(map(self.executors.number, pods))
        return known

    def _called_committed(self, state: State, number: int) -> tuple[str, ...]:
        said = {one for _, record in state.log for one in self._commits_of(record)}
        claims = self.executors.decisions[number].claims
        return tuple(claim.uid for claim in claims if (claim.uid, claim.attempt) in said)

    def _commits_of(self, record: int) -> frozenset[tuple[str, int]]:
        known = self._committed.get(record)
        if known is None:
            read = self.replicas.records[record]
            releases = read.releases if isinstance(read, Released) else ()
            known = frozenset((r.claim_uid, r.attempt) for r in releases if r.why == "committed")
            self._committed[record] = known
        return known

    def _void_commands(self, state: State) -> Iterator[Next]:
        for claim, attempt in state.voids:
            made = self.executors.void(claim, attempt, state.objects[claim][-1])
            if made is not None:
                action = Action("void", claim, attempt)
                yield Next(action, self._changed(state, claim, made), False)

    # --- the cluster -------------------------------------------------------------------

    def _creations(self, state: State) -> Iterator[Next]:
        """A pod that was not there at the beginning, and its claims."""
        for pod in self.subjects.pods:
            if pod in self.subjects.born and len(state.objects[pod]) == 1:
                made = state
                for subject in (*self.subjects.all[pod].claims, pod):
                    made = self._changed(made, subject, self.subjects.born[subject])
                yield Next(Action("create", pod), made, False)

    def _collections(self, state: State) -> Iterator[Next]:
        """Kubernetes takes away the claims of pods that are gone."""
        gone = self.subjects.gone
        for claim in self.subjects.claims:
            owner, now = self.subjects.all[claim].owner, state.objects[claim][-1]
            if state.objects[owner][-1] != gone or now == gone:
                continue
            metadata = self.subjects.versions[now]["metadata"]
            if metadata.get("finalizers") and "deletionTimestamp" not in metadata:
                made = self._edit("delete", now)
                yield Next(Action("deleting", claim), self._changed(state, claim, made), False)
            else:
                yield Next(Action("gone", claim), self._changed(state, claim, gone), False)

    def _deletions(self, state: State) -> Iterator[Next]:
        if state.spent.deleted_pods >= self.bound.deleted_pods:
            return
        for pod in self.subjects.pods:
            if state.objects[pod][-1] != self.subjects.gone:
                spent = state.spent._replace(deleted_pods=state.spent.deleted_pods + 1)
                made = self._changed(state._replace(spent=spent), pod, self.subjects.gone)
                yield Next(Action("delete", pod), made, True)

    def _losses(self, state: State) -> Iterator[Next]:
        if state.spent.lost_nodes >= self.bound.lost_nodes:
            return
        for node in self.subjects.nodes:
            history = state.objects[node]
            if len(history) == 1:
                spent = state.spent._replace(lost_nodes=state.spent.lost_nodes + 1)
                made = self._edit("lose", history[-1])
                after = self._changed(state._replace(spent=spent), node, made)
                yield Next(Action("lose", node), after, True)

    def _ticks(self, state: State, busy: bool) -> Iterator[Next]:
        """Time passes, early, or because nothing else is left."""
        spent = state.spent
        if busy and spent.early_ticks < self.bound.early_ticks:
            spent = spent._replace(early_ticks=spent.early_ticks + 1)
        elif not busy and spent.closing_ticks < self.bound.closing_ticks:
            spent = spent._replace(closing_ticks=spent.closing_ticks + 1)
        else:
            return
        time = self.subjects.time
        made = self._edit("tick", state.objects[time][-1])
        yield Next(Action("tick"), self._changed(state._replace(spent=spent), time, made), busy)

    def _edit(self, what: str, version: int) -> int:
        key = (what, version)
        known = self._edited.get(key)
        if known is None:
            made = _edited(what, self.subjects.versions[version])
            known = self._edited[key] = self.subjects.number(made)
        return known


def exchanged(state: State) -> State:
    """The one of this state and the same with both replicas exchanged that comes first."""
    first, second = state.replicas
    if first < second:
        return state
    log = tuple((1 - writer if writer >= 0 else writer, record) for writer, record in state.log)
    if first == second and state.log <= log:
        return state
    return state._replace(replicas=(second, first), log=log)


def _with(state: State, index: int, one: ReplicaAt) -> State:
    replicas = state.replicas
    return state._replace(replicas=(*replicas[:index], one, *replicas[index + 1 :]))


def _records(state: State, index: int, start: int, end: int) -> tuple[Folded, ...]:
    """Records of the log after ``start`` up to ``end``, as a replica reads them."""
    read = enumerate(state.log[start:end], start + 1)
    return tuple((sequence, record, writer == index) for sequence, (writer, record) in read)


def _sent(append: Appended) -> Sent:
    return Sent(append.record, append.expected, UNSENT if append.chained else UNCHAINED)


def _edited(what: str, obj: Object) -> Object:
    match what:
        case "tick":
            return {"now_unix_s": obj["now_unix_s"] + TICK_S}
        case "lose":
            return {"pool": "", "revision": obj["revision"] + 1}
        case _:
            metadata = dict(obj["metadata"])
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
            return {**obj, "metadata": metadata}
