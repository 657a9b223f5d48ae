"""The steps of replicas and of the bus: decisions, appends, publications."""

from collections.abc import Iterator

from dray.api.claims import last_attempt_before
from dray.messages.decisions import Decided, DecidedGroup
from dray.messages.group_parts import NO_GROUP_PARTS
from tools.model_checker.bounds import Bound, PublicationMode
from tools.model_checker.executors import Executors
from tools.model_checker.replicas import EPOCH, Appended, ModelReplicas
from tools.model_checker.state import (
    ORPHAN,
    UNCHAINED,
    UNSENT,
    Action,
    Commands,
    ModelBus,
    ModelGivenUp,
    Next,
    ReplicaAt,
    Sent,
    State,
    newest_of,
    with_replica,
)
from tools.model_checker.subjects import NONE, Subjects


class ReplicaSteps:
    """The steps of replicas, which all read every change at once."""

    def __init__(
        self, bound: Bound, bus: ModelBus, subjects: Subjects, executors: Executors
    ) -> None:
        self.replicas = ModelReplicas(
            subjects, checkpoints=bound.checkpoints, pods_in_parts=bound.pods_in_parts
        )
        self._bound = bound
        self._bus = bus
        self._subjects = subjects
        self._executors = executors
        self._decisions: dict[int, tuple[int, ...]] = {}
        self._decided: dict[tuple[int, ...], tuple[tuple[int, float], ...]] = {}

    def decisions(self, state: State, index: int) -> Iterator[Next]:
        """A replica decides, if it has something to decide."""
        one = state.replicas[index]
        if len(one.sent) > self._bound.ahead:
            return
        step = self.replicas.act(one.local, len(state.log))
        voids = self._commands(state, step.voids)
        if step.appends or step.alarms or voids != state.voids:
            sent = (*one.sent, *(_sent(append) for append in step.appends))
            after = with_replica(state._replace(voids=voids), index, ReplicaAt(step.local, sent))
            yield Next(Action("act", index), after, False, step.alarms)

    def lagging_voids(self, state: State) -> Iterator[Next]:
        """A replica that has not read the log's last records voids claims."""
        if state.spent.lagging_voids >= self._bound.lagging_voids:
            return
        spent = state.spent._replace(lagging_voids=state.spent.lagging_voids + 1)
        for end in range(1, len(state.log)):
            step = self.replicas.act(self._restarted(state, end), end)
            voids = self._commands(state, step.voids)
            if voids != state.voids:
                after = state._replace(voids=voids, spent=spent)
                yield Next(Action("lagging-void", what=end), after, True)

    def arrivals(self, state: State, index: int) -> Iterator[Next]:
        """The replica's oldest append reaches the bus; its answer may be lost."""
        one = state.replicas[index]
        if not one.sent:
            return
        head, rest = one.sent[0], one.sent[1:]
        if self._refuses(head, len(state.log)):
            sent = tuple(other._replace(after=ORPHAN) for other in rest)
            heard = head.after == ORPHAN
            local = one.local if heard else self.replicas.failed(one.local)
            made = with_replica(state, index, ReplicaAt(local, rest if heard else sent))
            yield Next(Action("refused", index, head.record), made, False)
            return
        if self._exceeds_attempts(head.record) or self._interrupts_again(state.log, head.record):
            yield Next(Action("cut"), state, False)
            return
        stored = self._stored(state, index)
        yield Next(Action("stored", index, head.record), stored, False)
        if state.spent.lost_answers < self._bound.lost_answers:
            spent = state.spent._replace(lost_answers=state.spent.lost_answers + 1)
            after = stored.replicas[index]
            lost = after._replace(local=self.replicas.failed(after.local))
            made = with_replica(stored._replace(spent=spent), index, lost)
            yield Next(Action("stored unheard", index, head.record), made, True)

    def _stored(self, state: State, index: int) -> State:
        """The state after the replica's oldest append was stored and read by all.

        Others whose pending appends will certainly be refused get the refusals at once: until then
        they could only send more refused appends.
        """
        head, *rest = state.replicas[index].sent
        log = (*state.log, head.record)
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
        return self._after_idle_decisions(state._replace(log=log, replicas=tuple(replicas)))

    def _after_idle_decisions(self, state: State) -> State:
        """The state after all replicas decided whose decisions have no effects."""
        end = len(state.log)
        replicas = []
        for one in state.replicas:
            step = self.replicas.act(one.local, end)
            asks = self._commands(state, step.voids) != state.voids
            quiet = not (step.appends or step.alarms or asks)
            replicas.append(one._replace(local=step.local) if quiet else one)
        return state._replace(replicas=tuple(replicas))

    def _exceeds_attempts(self, record: int) -> bool:
        decided = map(self._executors.decisions.__getitem__, self.decisions_of(record))
        most = last_attempt_before(EPOCH) + self._bound.attempts
        return any(claim.attempt > most for one in decided for claim in one.claims)

    def _interrupts_again(self, log: tuple[int, ...], record: int) -> bool:
        """Whether one more record would exceed the bound's interrupted decisions."""
        parts, found = NO_GROUP_PARTS, 0
        for one in (*log, record):
            after = parts.followed_by(self.replicas.records[one])
            is_begun = bool(parts.parts) and not parts.is_complete
            found += is_begun and after.parts[:-1] != parts.parts
            parts = after
        return found > self._bound.interruptions

    def _refuses(self, head: Sent, end: int) -> bool:
        late = self._bus.fenced and head.expected != end
        builds_on_another = self._bus.chained and head.after not in (UNCHAINED, end)
        return late or builds_on_another

    def crashes(self, state: State, index: int) -> Iterator[Next]:
        if state.spent.crashes < self._bound.crashes:
            spent = state.spent._replace(crashes=state.spent.crashes + 1)
            after = ReplicaAt(self._restarted(state, len(state.log)))
            made = self._after_idle_decisions(
                with_replica(state._replace(spent=spent), index, after)
            )
            yield Next(Action("crash", index), made, True)

    def _restarted(self, state: State, end: int) -> int:
        """A restarted replica that has read all published facts and the log up to ``end``."""
        given_up = newest_of(state)
        facts = tuple(
            (subject, history[at], self._last_existing(history), given_up.get(subject, NONE))
            for subject, (history, at) in enumerate(
                zip(state.objects, state.published, strict=True)
            )
            if at or subject in given_up
        )
        records = tuple((at, record, False) for at, record in enumerate(state.log[:end], 1))
        return self.replicas.restarted(facts, records)

    # --- facts -------------------------------------------------------------------------

    def publications(self, state: State) -> Iterator[Next]:
        """Facts are published in an order that the bound allows."""
        if self._bound.publication is PublicationMode.IN_ORDER:
            return
        news = self._unpublished(state)
        parts: list[tuple[int, ...]]
        if self._bound.publication is PublicationMode.BY_OBJECT:
            parts = [(one,) for one in news]
        else:
            kinds = dict.fromkeys(self._subjects.all[one].kind for one in news)
            parts = [
                tuple(one for one in news if self._subjects.all[one].kind is kind) for kind in kinds
            ]
        for part in parts:
            yield Next(Action("publish", part[0]), self._publish(state, part), False)

    def _unpublished(self, state: State) -> tuple[int, ...]:
        return tuple(
            subject
            for subject, history in enumerate(state.objects)
            if state.published[subject] < len(history) - 1
        )

    def _publish(self, state: State, subjects: tuple[int, ...]) -> State:
        """The state after the newest versions of these subjects were published."""
        facts, published = [], list(state.published)
        given_up = newest_of(state)
        for subject in subjects:
            history = state.objects[subject]
            published[subject] = len(history) - 1
            record = given_up.get(subject, NONE)
            facts.append((subject, history[-1], self._last_existing(history), record))
        replicas = tuple(
            one._replace(local=self.replicas.read(one.local, tuple(facts), ()))
            for one in state.replicas
        )
        return self._after_idle_decisions(
            state._replace(published=tuple(published), replicas=replicas)
        )

    def _last_existing(self, history: tuple[int, ...]) -> int:
        """The last existing version, for a tombstone."""
        return next(one for one in reversed(history) if one != self._subjects.gone)

    def changed(self, state: State, subject: int, version: int) -> State:
        """The state with a new version of a subject."""
        objects = state.objects
        history = (*objects[subject], version)
        made = state._replace(objects=(*objects[:subject], history, *objects[subject + 1 :]))
        made = made._replace(voids=self._commands(made))
        if self._bound.publication is PublicationMode.IN_ORDER:
            return self._publish(made, (subject,))
        return made

    def given_up(self, state: State, claim: int, record: int) -> State:
        """The state after attempts of a claim were given up and this was published."""
        at = len(state.objects[claim]) - 1
        made = state._replace(given_up=(*state.given_up, ModelGivenUp(claim, record, at)))
        return self._publish(made._replace(voids=self._commands(made)), (claim,))

    def _commands(self, state: State, sent: tuple[tuple[int, int], ...] = ()) -> Commands:
        """Commands that still have an effect, with new ones."""
        return tuple(
            (claim, attempt)
            for claim, attempt in sorted({*state.voids, *sent})
            if not self._executors.is_settled(state, claim, attempt)
        )

    def decided(self, log: tuple[int, ...]) -> tuple[tuple[int, float], ...]:
        """The decisions of a log, in order, with their times. Those on a group count with its last
        part."""
        known = self._decided.get(log)
        if known is None:
            known = self._decided[log] = tuple(self._whole_decisions(log))
        return known

    def _whole_decisions(self, log: tuple[int, ...]) -> Iterator[tuple[int, float]]:
        parts = NO_GROUP_PARTS
        for record in log:
            read = self.replicas.records[record]
            parts = parts.followed_by(read)
            if not isinstance(read, DecidedGroup):
                numbers = self.decisions_of(record)
            else:
                pods = parts.pods if parts.is_complete else ()
                numbers = tuple(map(self._executors.number, pods))
            for number in numbers:
                yield number, read.now_unix_s

    def decisions_of(self, record: int) -> tuple[int, ...]:
        known = self._decisions.get(record)
        if known is None:
            read = self.replicas.records[record]
            pods = read.pods if isinstance(read, Decided) else ()
            known = self._decisions[record] = tuple(map(self._executors.number, pods))
        return known


def _sent(append: Appended) -> Sent:
    return Sent(append.record, append.expected, UNSENT if append.chained else UNCHAINED)
