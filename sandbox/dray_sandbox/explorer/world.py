"""A state of everything, and what may happen next in it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, islice
from typing import NamedTuple

from dray.kube.ports import Object
from dray.messages.decisions import Decided, Released
from dray_sandbox.explorer.bound import Bound
from dray_sandbox.explorer.executors import Executors
from dray_sandbox.explorer.replicas import Acted, Appended, Folded, Replicas, Sequenced
from dray_sandbox.explorer.server import Server
from dray_sandbox.explorer.subjects import TICK_S, Subjects

UNCHAINED, UNSENT, ORPHAN = -1, -2, -3
"""What an append must follow: nothing, one that is still before it, one that was refused."""
SERVING = -1


class Sent(NamedTuple):
    """An append on its way: the record, the last sequence it expects, and the sequence of the
    record that it must follow directly."""

    record: int
    expected: int
    after: int


class ReplicaAt(NamedTuple):
    """A replica: its state, how far it has read, and what it has sent."""

    local: int
    facts: int
    """How many of ``State.facts`` it has read."""
    records: int
    sent: tuple[Sent, ...]
    must_read: int = SERVING
    """After a failure, up to where it reads before it serves again."""


class Spent(NamedTuple):
    """How much of the bound's harms was done."""

    crashes: int = 0
    lost_answers: int = 0
    early_ticks: int = 0
    deleted_pods: int = 0
    lost_nodes: int = 0
    closing_ticks: int = 0


class State(NamedTuple):
    """Everything. Numbers are those of ``Subjects``, ``Replicas`` and ``Executors``."""

    objects: tuple[tuple[int, ...], ...]
    """Per subject, its versions from the first to the newest."""
    published: tuple[int, ...]
    """Per subject, which of its versions is the last that was published."""
    facts: tuple[Sequenced, ...]
    """What is published and not read by all. A fact's sequence is the sum of ``published``: it
    grows with every fact, and is the same whatever the order was."""
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
        local = self.replicas.begin()
        one = ReplicaAt(local, 0, 1, (), must_read=1)
        objects = tuple((version,) for version in self.subjects.first)
        published = (0,) * len(objects)
        return State(objects, published, (), ((-1, self.replicas.opened),), (one, one), (), Spent())

    def next(self, state: State) -> list[Next]:
        """Everything that may happen; once only time is left to pass, one way on is enough."""
        if state.spent.closing_ticks:
            return [*islice(self._orderly(state), 1)]
        found = [
            *self._executions(state),
            *self._void_commands(state),
            *self._collections(state),
        ]
        for index in range(len(state.replicas)):
            found += self._acts(state, index)
            found += self._arrivals(state, index)
            found += self._crashes(state, index)
        found += self._deletions(state)
        found += self._losses(state)
        found += self._ticks(state, any(not step.harm for step in found))
        return found

    def _orderly(self, state: State) -> Iterator[Next]:
        """What comes to rest soonest: everything arrives, and who acts has read all there is."""
        yield from self._arrivals(state, 0)
        yield from self._arrivals(state, 1)
        yield from self._void_commands(state)
        yield from self._executions(state)
        yield from self._collections(state)
        news = tuple(
            subject
            for subject, history in enumerate(state.objects)
            if state.published[subject] < len(history) - 1
        )
        facts, published = self._publish(state, news)
        told = state._replace(facts=facts, published=published)
        yield from self._act(told, 0, len(facts), len(state.log))
        yield from self._ticks(state, busy=False)

    # --- replicas ----------------------------------------------------------------------

    def _acts(self, state: State, index: int) -> Iterator[Next]:
        one = state.replicas[index]
        if len(one.sent) > self.bound.ahead:
            return
        for facts, published, read in self._cuts(state, one):
            told = state._replace(facts=facts, published=published)
            for records in range(max(one.records, one.must_read), len(state.log) + 1):
                yield from self._act(told, index, read, records)

    def _act(self, state: State, index: int, read: int, records: int) -> Iterator[Next]:
        """A replica reads up to there and acts, if it has anything to say then."""
        one = state.replicas[index]
        batch = state.facts[one.facts : read]
        if not batch and records == one.records and one.must_read == SERVING:
            return
        folded = tuple(
            (sequence, state.log[sequence - 1][1], state.log[sequence - 1][0] == index)
            for sequence in range(one.records + 1, records + 1)
        )
        acted = self.replicas.act(one.local, batch, folded, records)
        voids = [void for void in acted.voids if void not in state.voids]
        doomed = self._bus.fenced and records < len(state.log)
        if (acted.appends and not doomed) or voids or acted.alarms:
            yield self._acted(state, index, acted, read, records)

    def _cuts(
        self, state: State, one: ReplicaAt
    ) -> Iterator[tuple[tuple[Sequenced, ...], tuple[int, ...], int]]:
        """The facts afterwards, and how many of them the replica has read: a part of what is
        published, or all of it and the newest state of some objects."""
        for read in range(one.facts, len(state.facts) + 1):
            yield state.facts, state.published, read
        news = [
            subject
            for subject, history in enumerate(state.objects)
            if state.published[subject] < len(history) - 1
        ]
        kinds = news if self.bound.any_order else {self.subjects.all[one].kind for one in news}
        together = [
            tuple(one for one in news if kind in (one, self.subjects.all[one].kind))
            for kind in sorted(kinds)
        ]
        for size in range(1, len(together) + 1):
            for chosen in combinations(together, size):
                facts, published = self._publish(state, tuple(chain.from_iterable(chosen)))
                yield facts, published, len(facts)

    def _publish(
        self, state: State, chosen: tuple[int, ...]
    ) -> tuple[tuple[Sequenced, ...], tuple[int, ...]]:
        """The newest version of each of these subjects, one after the other."""
        facts, published = list(state.facts), list(state.published)
        for subject in chosen:
            history = state.objects[subject]
            before, published[subject] = published[subject], len(history) - 1
            sequence = self.replicas.configured + sum(published)
            facts.append((sequence, subject, history[-1], history[before]))
        return tuple(facts), tuple(published)

    def _acted(
        self,
        state: State,
        index: int,
        acted: Acted,
        read: int,
        records: int,
    ) -> Next:
        one = state.replicas[index]
        sent = (*one.sent, *(_sent(append) for append in acted.appends))
        after = ReplicaAt(acted.local, read, records, sent)
        voids = tuple(sorted({*state.voids, *acted.voids}))
        made = trimmed(_with(state._replace(voids=voids), index, after))
        return Next(Action("act", index), made, False, acted.alarms)

    def _arrivals(self, state: State, index: int) -> Iterator[Next]:
        """The replica's oldest append reaches the bus; its answer arrives, or not."""
        one = state.replicas[index]
        if not one.sent:
            return
        head, rest = one.sent[0], one.sent[1:]
        end = len(state.log)
        if self._refuses(head, end):
            left = () if self._bus.chained else tuple(sent._replace(after=ORPHAN) for sent in rest)
            if head.after == ORPHAN:
                after = one._replace(sent=rest)
            else:
                local = self.replicas.failed(one.local)
                after = one._replace(local=local, sent=left, must_read=end)
            yield Next(Action("refused", index, head.record), _with(state, index, after), False)
            return
        if rest and rest[0].after == UNSENT:
            rest = (rest[0]._replace(after=end + 1), *rest[1:])
        made = state._replace(log=(*state.log, (index, head.record)))
        stored = _with(made, index, one._replace(sent=rest))
        yield Next(Action("stored", index, head.record), stored, False)
        if state.spent.lost_answers < self.bound.lost_answers:
            local = self.replicas.failed(one.local)
            after = one._replace(local=local, sent=rest, must_read=end + 1)
            spent = state.spent._replace(lost_answers=state.spent.lost_answers + 1)
            lost = _with(made._replace(spent=spent), index, after)
            yield Next(Action("stored unheard", index, head.record), lost, True)

    def _refuses(self, head: Sent, end: int) -> bool:
        late = self._bus.fenced and head.expected != end
        builds_on_another = self._bus.chained and head.after not in (UNCHAINED, end)
        return late or builds_on_another

    def _crashes(self, state: State, index: int) -> Iterator[Next]:
        if state.spent.crashes >= self.bound.crashes:
            return
        facts = tuple(
            (self.replicas.configured + 1 + subject, subject, history[at], history[0])
            for subject, (history, at) in enumerate(zip(state.objects, state.published, strict=True))
        )
        records: tuple[Folded, ...] = tuple(
            (sequence, record, False) for sequence, (_, record) in enumerate(state.log, 1)
        )
        local = self.replicas.restarted(facts, records)
        end = len(state.log)
        spent = state.spent._replace(crashes=state.spent.crashes + 1)
        after = ReplicaAt(local, len(state.facts), end, (), must_read=end)
        made = trimmed(_with(state._replace(spent=spent), index, after))
        yield Next(Action("crash", index), made, True)

    # --- executors and the server --------------------------------------------------------

    def _executions(self, state: State) -> Iterator[Next]:
        for number in self.decided(state):
            committed = self._called_committed(state, number)
            for write in self.executors.writes(number, committed, state.objects):
                action = Action(write.what, write.subject, number, write.why)
                yield Next(action, changed(state, write.subject, write.version), False)

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
                yield Next(action, changed(state, claim, made), False)

    # --- the cluster -------------------------------------------------------------------

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
                yield Next(Action("deleting", claim), changed(state, claim, made), False)
            else:
                yield Next(Action("gone", claim), changed(state, claim, gone), False)

    def _deletions(self, state: State) -> Iterator[Next]:
        if state.spent.deleted_pods >= self.bound.deleted_pods:
            return
        for pod in self.subjects.pods:
            if state.objects[pod][-1] != self.subjects.gone:
                spent = state.spent._replace(deleted_pods=state.spent.deleted_pods + 1)
                made = changed(state._replace(spent=spent), pod, self.subjects.gone)
                yield Next(Action("delete", pod), made, True)

    def _losses(self, state: State) -> Iterator[Next]:
        if state.spent.lost_nodes >= self.bound.lost_nodes:
            return
        for node in self.subjects.nodes:
            history = state.objects[node]
            if len(history) == 1:
                spent = state.spent._replace(lost_nodes=state.spent.lost_nodes + 1)
                made = self._edit("lose", history[-1])
                after = changed(state._replace(spent=spent), node, made)
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
        yield Next(Action("tick"), changed(state._replace(spent=spent), time, made), busy)

    def _edit(self, what: str, version: int) -> int:
        key = (what, version)
        known = self._edited.get(key)
        if known is None:
            made = _edited(what, self.subjects.versions[version])
            known = self._edited[key] = self.subjects.number(made)
        return known


def changed(state: State, subject: int, version: int) -> State:
    """With a new version of a subject."""
    objects = state.objects
    history = (*objects[subject], version)
    return state._replace(objects=(*objects[:subject], history, *objects[subject + 1 :]))


def trimmed(state: State) -> State:
    """Without the facts that all replicas have read."""
    read = min(one.facts for one in state.replicas)
    if not read:
        return state
    replicas = tuple(one._replace(facts=one.facts - read) for one in state.replicas)
    return state._replace(facts=state.facts[read:], replicas=replicas)


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
