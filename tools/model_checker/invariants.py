"""Invariants of Kubernetes' objects and of the log's records."""

from collections.abc import Iterator
from itertools import chain, product

from dray.api.claims import Claim
from dray.api.names import VIRTUAL_TFLOPS
from dray.api.pods import Pod
from dray.api.quantities import parse_quantity
from dray.kube.convert import claim_from, pod_from
from dray.messages.decisions import ClaimDecision, Decided
from dray_allocator.state.domain import LogFold, Stage
from dray_claim_controller.execution.decisions.next_step import same_allocation
from tools.model_checker.state import Next, State
from tools.model_checker.subjects import TFLOPS
from tools.model_checker.world import ModelWorld


class ModelInvariants:
    """Checks every step, and every final state."""

    def __init__(self, world: ModelWorld) -> None:
        self._world = world
        self._subjects = world.subjects
        self._claims: dict[int, Claim | None] = {}
        self._pods: dict[int, Pod | None] = {}

    def step(self, before: State, step: Next) -> str:
        """The violation after the step, or ""."""
        for alarm in step.alarms:
            return f"a replica reports a double allocation: {alarm}"
        kind = step.action.kind
        if kind in ("stored", "stored unheard"):
            return next(self._decided_again(before, step.action.what), "")
        if kind == "commit":
            return next(self._committed(before, step), "")
        if kind == "bind":
            return next(chain(self._bound(step.state), self._bound_alone(step)), "")
        if kind == "roll back: clear":
            return next(self._bound(step.state), "")
        return ""

    def end(self, state: State) -> str:
        """The violation in a final state, or ""."""
        return next(self._unfinished(state), "")

    def claim(self, state: State, subject: int) -> Claim | None:
        """The claim on the server; None: deleted."""
        version = state.objects[subject][-1]
        if version not in self._claims:
            gone = version == self._subjects.gone
            read = None if gone else claim_from(self._subjects.versions[version])
            self._claims[version] = read
        return self._claims[version]

    def pod(self, state: State, subject: int) -> Pod | None:
        """The pod on the server; None: deleted."""
        version = state.objects[subject][-1]
        if version not in self._pods:
            gone = version == self._subjects.gone
            read = None if gone else pod_from(self._subjects.versions[version])
            self._pods[version] = read
        return self._pods[version]

    def _committed(self, before: State, step: Next) -> Iterator[str]:
        subject, number = step.action.who, step.action.what
        earlier, claim = self.claim(before, subject), self.claim(step.state, subject)
        assert earlier is not None
        assert claim is not None
        decision = self._world.executors.decisions[number]
        attempt = next(made.attempt for made in decision.claims if made.uid == claim.uid)
        if attempt <= earlier.void:
            yield (
                f"attempt {attempt} of claim {claim.uid} is carried out, although it voids "
                f"attempts up to {earlier.void}"
            )
        if attempt <= (void := self._given_up(before, subject)):
            yield (
                f"attempt {attempt} of claim {claim.uid} is carried out, although attempts up to "
                f"{void} were given up and their devices given back"
            )
        if earlier.allocation is not None:
            yield f"claim {claim.uid} is allocated a second time"
        yield from self._over_capacity(step.state)

    def _over_capacity(self, state: State) -> Iterator[str]:
        for device, taken in self._allocated(state).items():
            total = sum(taken.values())
            if total > TFLOPS:
                yield f"{device} has {TFLOPS}, and {total} are allocated: {taken}"

    def _allocated(self, state: State) -> dict[str, dict[str, int]]:
        """Allocated amounts by device and claim."""
        taken: dict[str, dict[str, int]] = {}
        for subject in self._subjects.claims:
            claim = self.claim(state, subject)
            for share in claim.allocation.devices if claim and claim.allocation else ():
                amount = parse_quantity(share.consumed[VIRTUAL_TFLOPS]).value
                taken.setdefault(share.id.device, {})[claim.uid if claim else ""] = amount
        return taken

    def _bound(self, state: State) -> Iterator[str]:
        for subject in self._subjects.pods:
            pod = self.pod(state, subject)
            if pod is None or not pod.node:
                continue
            for claim in (self.claim(state, one) for one in self._subjects.all[subject].claims):
                if claim is None or claim.allocation is None:
                    lost = claim.uid if claim else "that is gone"
                    yield f"pod {pod.uid} is bound to {pod.node} without an allocation of {lost}"
                elif claim.allocation.node != pod.node:
                    place = claim.allocation.node
                    yield f"pod {pod.uid} is bound to {pod.node}, its claim {claim.uid} to {place}"
                elif claim.reserved_for != (pod.uid,):
                    yield f"pod {pod.uid} is bound, but {claim.uid} is not reserved for it"

    def _bound_alone(self, step: Next) -> Iterator[str]:
        """A group's pod is bound only after all claims of the group's decisions were allocated."""
        decisions = self._world.executors.decisions
        group = decisions[step.action.what].group
        if group is None:
            return
        for one in map(decisions.__getitem__, self._world.decided(step.state)):
            for made in one.claims if one.group == group else ():
                versions = step.state.objects[self._subjects.by_uid[made.uid]]
                if not any(self._is_allocated(version, made) for version in versions):
                    yield f"a pod of the group is bound, and claim {made.uid} was never allocated"

    def _is_allocated(self, version: int, made: ClaimDecision) -> bool:
        if version == self._subjects.gone:
            return False
        allocation = self._subjects.claim(version).allocation
        return allocation is not None and same_allocation(allocation, made.allocation)

    def _decided_again(self, before: State, record: int) -> Iterator[str]:
        """A claim is decided again only after all earlier attempts are void, or it is deleted."""
        read = self._world.replicas.records[record]
        if not isinstance(read, Decided):
            return
        known: dict[str, int] = {}
        for number in self._world.decided(before):
            for made in self._world.executors.decisions[number].claims:
                known[made.uid] = max(made.attempt, known.get(made.uid, 0))
        for made in (made for pod in read.pods for made in pod.claims):
            claim = self.claim(before, self._subjects.by_uid[made.uid])
            earlier = known.get(made.uid, 0)
            if made.attempt <= earlier:
                yield f"attempt {made.attempt} of claim {made.uid} is decided after {earlier}"
            elif earlier and claim is not None and self._void(before, claim) < earlier:
                yield (
                    f"attempt {made.attempt} of claim {made.uid} is decided while attempt "
                    f"{earlier} may still be carried out"
                )

    def _void(self, state: State, claim: Claim) -> int:
        return max(claim.void, self._given_up(state, self._subjects.by_uid[claim.uid]))

    def _given_up(self, state: State, subject: int) -> int:
        """The highest attempt that counts as void without the claim's annotation."""
        record = self._world.executors.record(state, subject)
        return 0 if record is None else record.void

    def _may_commit(self, state: State, subject: int) -> bool:
        """Whether a given-up claim that can't be written may still be committed."""
        record = self._world.executors.record(state, subject)
        return record is not None and record.void < record.attempt

    def _unfinished(self, state: State) -> Iterator[str]:
        log = LogFold()
        for sequence, record in enumerate(state.log, 1):
            log.fold(sequence, self._world.replicas.records[record])
        for reservation in log.claims.values():
            number = self._subjects.by_uid[reservation.claim_uid]
            claim = self.claim(state, number)
            unallocated = claim is None or claim.allocation is None
            if (
                reservation.stage is Stage.RESERVED
                and unallocated
                and not self._may_commit(state, number)
            ):
                yield f"the reservation of {reservation.claim_uid} is never released"
        yield from self._half_a_group(state)
        for subject in self._subjects.pods:
            pod = self.pod(state, subject)
            if pod is not None and not pod.node:
                yield from self._waiting(state, subject, log)

    def _half_a_group(self, state: State) -> Iterator[str]:
        """Once everything is done, enough pods of the group run, or none does; if none does, they
        do not fit."""
        minimum = self._world.bound.group_minimum
        pods = [pod for subject in self._members() if (pod := self.pod(state, subject)) is not None]
        running = [pod for pod in pods if pod.node]
        if 0 < len(running) < minimum:
            yield f"{len(running)} pods of the group run, and its minimum is {minimum}"
        if minimum and not running and len(pods) >= minimum and not state.refused:
            sizes = [sum(self._sizes(subject)) for subject in self._members()]
            if self._fit(state, sorted(sizes)[:minimum]):
                yield "the group waits, although it fits"

    def _members(self) -> list[int]:
        kinds = self._world.bound.pods
        return [pod for pod, kind in zip(self._subjects.pods, kinds, strict=True) if kind.is_member]

    def _sizes(self, subject: int) -> tuple[int, ...]:
        return self._world.bound.pods[self._subjects.pods.index(subject)].claims

    def _fit(self, state: State, sizes: list[int]) -> bool:
        """Whether pods of these sizes fit the nodes together."""
        taken = self._allocated(state)
        free = []
        for node in self._subjects.nodes:
            name = self._subjects.all[node].name
            if self._subjects.versions[state.objects[node][-1]]["pool"]:
                free.append(TFLOPS - sum(taken.get(f"{name}-device", {}).values()))
        return any(
            all(
                sum(size for size, at in zip(sizes, chosen, strict=True) if at == node) <= room
                for node, room in enumerate(free)
            )
            for chosen in product(range(len(free)), repeat=len(sizes))
        )

    def _waiting(self, state: State, subject: int, log: LogFold) -> Iterator[str]:
        one = self._subjects.all[subject]
        claims = [self.claim(state, claim) for claim in one.claims]
        held = [claim.uid for claim in claims if claim is not None and claim.allocation is not None]
        refused = [claim for claim in one.claims if claim in state.refused]
        explained = log.waiting.get(one.name)
        # The claim-controller explains claims that can't be written.
        if explained is None and not refused:
            yield f"pod {one.name} is neither scheduled nor has an explanation"
        if held and not refused:
            yield f"pod {one.name} waits and holds {', '.join(held)}"
        if explained is None or held or refused or subject in self._members():
            return
        kept = self._reserved(state, log)
        if node := self._room_for(state, subject, kept):
            yield f"pod {one.name} waits, although it fits {node}"
        elif self._room_for(state, subject, {}):
            reasons = [reason.what for reason in explained.reasons]
            if not any("held for claim" in what for what in reasons):
                yield f"the explanation of pod {one.name} lacks the claim it waits for: {reasons}"

    def _reserved(self, state: State, log: LogFold) -> dict[str, dict[str, int]]:
        """Amounts by device that stay reserved for claims that can't be written."""
        kept: dict[str, dict[str, int]] = {}
        for uid, reservation in log.claims.items():
            number = self._subjects.by_uid[uid]
            if reservation.stage is not Stage.OVER and self._may_commit(state, number):
                for share in reservation.allocation.devices:
                    amount = parse_quantity(share.consumed[VIRTUAL_TFLOPS]).value
                    kept.setdefault(share.id.device, {})[uid] = amount
        return kept

    def _room_for(self, state: State, subject: int, kept: dict[str, dict[str, int]]) -> str:
        """A node of the pool whose device has room for all claims of the pod, or ""."""
        taken = self._allocated(state)
        for device, amounts in kept.items():
            taken[device] = amounts | taken.get(device, {})
        wanted = sum(self._sizes(subject))
        for node in self._subjects.nodes:
            name = self._subjects.all[node].name
            used = sum(taken.get(f"{name}-device", {}).values())
            serves = self._subjects.versions[state.objects[node][-1]]["pool"]
            if serves and used + wanted <= TFLOPS:
                return name
        return ""
