"""Prints a path through the states."""

from collections.abc import Iterator

from dray.messages.decisions import AnyRecord, Decided, PodDecision, Released, Waiting
from tools.model_checker.state import Action, State, exchanged
from tools.model_checker.world import ModelWorld

_REPLICAS = ("one", "two")


def trace_lines(world: ModelWorld, way: list[tuple[Action, State]]) -> Iterator[str]:
    """One line per step; each state is the one after the step, before replicas are exchanged."""
    names = _REPLICAS
    for number, (action, state) in enumerate(way, 1):
        yield f"{number:3}  {describe(world, action, state, names)}"
        if exchanged(state) != state:
            names = names[::-1]


def describe(
    world: ModelWorld, action: Action, state: State, names: tuple[str, ...] = _REPLICAS
) -> str:
    """Describes a step; ``state`` is the one after it, before replicas are exchanged."""
    kind, who, what, why = action
    subject = world.subjects.all[who].name if who >= 0 and kind not in _OF_REPLICAS else ""
    replica = f"replica {names[who]}" if kind in _OF_REPLICAS else ""
    match kind:
        case "act":
            one = state.replicas[who]
            records = [world.replicas.records[sent.record] for sent in one.sent]
            doing = (
                "; ".join(describe_record(record) for record in records) or "to have claims voided"
            )
            return f"{replica} sends: {doing}"
        case "stored" | "stored unheard":
            unheard = ", but the answer is lost" if kind == "stored unheard" else ""
            record = describe_record(world.replicas.records[what])
            return f"the log stores record {len(state.log)} of {replica}: {record}{unheard}"
        case "refused":
            record = describe_record(world.replicas.records[what])
            return f"the log refuses {replica}: {record}"
        case "lagging-void":
            return f"a replica that has read {what} records sends commands to void claims"
        case "publish":
            return f"facts of the kind of {subject} are published"
        case "crash":
            return f"{replica} is killed, and its successor reads everything"
        case "command: void":
            return f"the command to void arrives: {subject} voids attempts up to {what}"
        case "command: give up":
            return f"the command to void arrives: {subject} can't be written, {what} is given up"
        case "repeat void":
            return f"{subject} now voids the given-up attempts by its annotation"
        case "refuse":
            return f"from now on the API server refuses to write {subject}"
        case "permit":
            return f"the API server accepts writes of {subject} again"
        case "create":
            return f"a user creates pod {subject}"
        case "delete":
            return f"a user deletes pod {subject}"
        case "deleting" | "gone":
            return f"Kubernetes deletes claim {subject}: it is {kind}"
        case "lose":
            return f"node {subject} leaves the pool"
        case "evict":
            return f"the group of pod {subject} ends: it is evicted"
        case _ if why == "the group ends":
            return f"the group ends: {kind} {subject}"
        case "tick":
            return "31 s pass"
        case _:
            decision = world.executors.decisions[what]
            reason = f" ({why})" if why else ""
            return f"an executor of {describe_decision(decision)}: {kind} {subject}{reason}"


def describe_record(record: AnyRecord) -> str:
    """Describes a record."""
    match record:
        case Decided(pods=pods):
            return "decided " + ", ".join(describe_decision(pod) for pod in pods)
        case Released(releases=releases):
            return "released " + ", ".join(
                f"{one.claim_uid} attempt {one.attempt % 1_000_000} ({one.why})" for one in releases
            )
        case Waiting(reasons=reasons):
            uids = ", ".join(one.pod_uid for one in record.by_pod())
            return f"{uids} waits ({', '.join(reason.kind for reason in reasons)})"
        case _:
            return type(record).__name__.lower()


def describe_decision(decision: PodDecision) -> str:
    """Describes a decision: the pod, its node, and the attempts of its claims."""
    claims = ", ".join(f"{one.uid} attempt {one.attempt % 1_000_000}" for one in decision.claims)
    return f"{decision.pod_uid} on {decision.node} ({claims})"


_OF_REPLICAS = ("act", "stored", "stored unheard", "refused", "crash")
