"""The model's possible steps."""

from collections.abc import Iterator
from itertools import islice

from dray.kube.ports import Object
from dray.messages.decisions import Released
from tools.model_checker.bounds import Bound
from tools.model_checker.executors import Executors, Write
from tools.model_checker.group_verdicts import JointDecision
from tools.model_checker.replica_steps import ReplicaSteps
from tools.model_checker.server import ModelServer
from tools.model_checker.state import (
    Action,
    ModelBus,
    Next,
    ReplicaAt,
    Spent,
    State,
    newest_of,
)
from tools.model_checker.subjects import NONE, TICK_S, Subjects


class ModelWorld:
    """All steps of a bound."""

    def __init__(self, bound: Bound, bus: ModelBus | None = None) -> None:
        self.bound = bound
        self.subjects = Subjects(bound)
        self.server = ModelServer(self.subjects)
        self.executors = Executors(self.subjects, self.server, bound, bus)
        self._replica_steps = ReplicaSteps(bound, bus or ModelBus(), self.subjects, self.executors)
        self.replicas = self._replica_steps.replicas
        self._committed: dict[int, frozenset[tuple[str, int]]] = {}
        self._edited: dict[tuple[str, int], int] = {}

    def first(self) -> State:
        """The initial state."""
        one = ReplicaAt(self.replicas.initial())
        objects = tuple((version,) for version in self.subjects.first)
        published = (0,) * len(objects)
        return State(
            objects, published, (self.replicas.opened,), (one,) * self.bound.replicas, (), Spent()
        )

    def next(self, state: State) -> list[Next]:
        """All possible steps; when only time can pass, one fair step."""
        if state.spent.closing_ticks:
            return [*islice(self._fair_steps(state), 1)]
        found = [
            *self._executions(state),
            *self._group_ends(state),
            *self._void_commands(state),
            *self._repeated_voids(state),
            *self._creations(state),
            *self._collections(state),
            *self._replica_steps.publications(state),
        ]
        for index in range(len(state.replicas)):
            found += self._replica_steps.decisions(state, index)
            found += self._replica_steps.arrivals(state, index)
            found += self._replica_steps.crashes(state, index)
        found += self._replica_steps.lagging_voids(state)
        found += self._deletions(state)
        found += self._losses(state)
        found += self._refusals(state)
        found += self._ticks(state, any(not step.fault for step in found))
        return found

    def _fair_steps(self, state: State) -> Iterator[Next]:
        """Steps in an order that soon reaches a final state."""
        for index in range(len(state.replicas)):
            yield from self._replica_steps.arrivals(state, index)
        yield from self._void_commands(state)
        yield from self._repeated_voids(state)
        yield from self._executions(state)
        yield from self._group_ends(state)
        yield from self._collections(state)
        yield from self._replica_steps.publications(state)
        yield from self._replica_steps.decisions(state, 0)
        yield from self._ticks(state, busy=False)

    # --- executors and the server --------------------------------------------------------

    def _executions(self, state: State) -> Iterator[Next]:
        joints = self._joint_decisions(state)
        for number in self.decided(state):
            committed = self._logged_commits(state, number)
            group = self.executors.decisions[number].group
            joint = None if group is None else joints[group.id]
            for write in self.executors.writes(number, committed, state, joint):
                action = Action(write.what, write.subject, number, write.why)
                yield Next(action, self._after(state, write), False)

    def _group_ends(self, state: State) -> Iterator[Next]:
        """Too few pods of the group have run for too long."""
        for write in self.executors.group_ends(self._joint_decisions(state), state):
            action = Action(write.what, write.subject, why=write.why)
            yield Next(action, self._after(state, write), False)

    def _joint_decisions(self, state: State) -> dict[str, JointDecision]:
        """The decisions on the group, by their ids, in order."""
        now = self.subjects.versions[state.objects[self.subjects.time][-1]]["now_unix_s"]
        found: dict[str, JointDecision] = {}
        for number, since_unix_s in self._replica_steps.decided(state.log):
            group = self.executors.decisions[number].group
            if group is not None:
                others = found[group.id].members if group.id in found else ()
                found[group.id] = JointDecision((*others, number), now - since_unix_s)
        return found

    def _after(self, state: State, write: Write) -> State:
        if write.record != NONE:
            return self._replica_steps.given_up(state, write.subject, write.record)
        return self._replica_steps.changed(state, write.subject, write.version)

    def decided(self, state: State) -> list[int]:
        """All decisions in the log, in order."""
        return [number for number, _ in self._replica_steps.decided(state.log)]

    def _logged_commits(self, state: State, number: int) -> tuple[str, ...]:
        logged = {one for record in state.log for one in self._commits_of(record)}
        claims = self.executors.decisions[number].claims
        return tuple(claim.uid for claim in claims if (claim.uid, claim.attempt) in logged)

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
            write = self.executors.void(claim, attempt, state)
            if write is not None:
                action = Action(f"command: {write.what}", claim, attempt)
                yield Next(action, self._after(state, write), False)

    def _repeated_voids(self, state: State) -> Iterator[Next]:
        for claim in newest_of(state):
            if (write := self.executors.repeat_void(claim, state)) is not None:
                yield Next(Action(write.what, claim), self._after(state, write), False)

    def _refusals(self, state: State) -> Iterator[Next]:
        """The server starts or stops refusing the writes of a claim."""
        spent = state.spent
        for claim in self.subjects.claims:
            is_there = state.objects[claim][-1] != self.subjects.gone
            if claim in state.refused and spent.permits < self.bound.permits:
                permitted = tuple(one for one in state.refused if one != claim)
                after = spent._replace(permits=spent.permits + 1)
                yield Next(
                    Action("permit", claim), state._replace(refused=permitted, spent=after), True
                )
            elif claim not in state.refused and is_there and spent.refusals < self.bound.refusals:
                refused = tuple(sorted((*state.refused, claim)))
                after = spent._replace(refusals=spent.refusals + 1)
                yield Next(
                    Action("refuse", claim), state._replace(refused=refused, spent=after), True
                )

    # --- the cluster -------------------------------------------------------------------

    def _creations(self, state: State) -> Iterator[Next]:
        """A late pod and its claims are created."""
        for pod in self.subjects.pods:
            if pod in self.subjects.created_versions and len(state.objects[pod]) == 1:
                made = state
                for subject in (*self.subjects.all[pod].claims, pod):
                    made = self._replica_steps.changed(
                        made, subject, self.subjects.created_versions[subject]
                    )
                yield Next(Action("create", pod), made, False)

    def _collections(self, state: State) -> Iterator[Next]:
        """Kubernetes deletes the claims of deleted pods."""
        gone = self.subjects.gone
        for claim in self.subjects.claims:
            owner, now = self.subjects.all[claim].owner, state.objects[claim][-1]
            if state.objects[owner][-1] != gone or now == gone:
                continue
            metadata = self.subjects.versions[now]["metadata"]
            if metadata.get("finalizers") and "deletionTimestamp" not in metadata:
                made = self._edit("delete", now)
                yield Next(
                    Action("deleting", claim),
                    self._replica_steps.changed(state, claim, made),
                    False,
                )
            else:
                yield Next(
                    Action("gone", claim), self._replica_steps.changed(state, claim, gone), False
                )

    def _deletions(self, state: State) -> Iterator[Next]:
        if state.spent.deleted_pods >= self.bound.deleted_pods:
            return
        for pod in self.subjects.pods:
            if state.objects[pod][-1] != self.subjects.gone:
                spent = state.spent._replace(deleted_pods=state.spent.deleted_pods + 1)
                made = self._replica_steps.changed(
                    state._replace(spent=spent), pod, self.subjects.gone
                )
                yield Next(Action("delete", pod), made, True)

    def _losses(self, state: State) -> Iterator[Next]:
        if state.spent.lost_nodes >= self.bound.lost_nodes:
            return
        for node in self.subjects.nodes:
            history = state.objects[node]
            if len(history) == 1:
                spent = state.spent._replace(lost_nodes=state.spent.lost_nodes + 1)
                made = self._edit("lose", history[-1])
                after = self._replica_steps.changed(state._replace(spent=spent), node, made)
                yield Next(Action("lose", node), after, True)

    def _ticks(self, state: State, busy: bool) -> Iterator[Next]:
        """Time passes, early or because no other step is possible."""
        spent = state.spent
        if busy and spent.early_ticks < self.bound.early_ticks:
            spent = spent._replace(early_ticks=spent.early_ticks + 1)
        elif not busy and spent.closing_ticks < self.bound.closing_ticks:
            spent = spent._replace(closing_ticks=spent.closing_ticks + 1)
        else:
            return
        time = self.subjects.time
        made = self._edit("tick", state.objects[time][-1])
        yield Next(
            Action("tick"),
            self._replica_steps.changed(state._replace(spent=spent), time, made),
            busy,
        )

    def _edit(self, what: str, version: int) -> int:
        key = (what, version)
        known = self._edited.get(key)
        if known is None:
            made = _edited(what, self.subjects.versions[version])
            known = self._edited[key] = self.subjects.number(made)
        return known


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
