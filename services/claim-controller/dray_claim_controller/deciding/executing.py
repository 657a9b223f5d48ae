"""Questions of those who carry decisions out and take them back. Pure."""

import msgspec

from dray.domain.claims import Allocation
from dray.kube.ports import NODES
from dray.messages.decisions import ClaimDecision, PodDecision
from dray_claim_controller.deciding.seam import Question
from dray_claim_controller.execute.adoption import adopted
from dray_claim_controller.execute.conditions import readiness
from dray_claim_controller.execute.defence import Holding
from dray_claim_controller.execute.inflight import InFlight
from dray_claim_controller.execute.orders import Order
from dray_claim_controller.execute.repelled import repelled_by
from dray_claim_controller.execute.rules import Observed, Step, next_step
from dray_claim_controller.execute.shares import with_shares
from dray_claim_controller.execute.voids import may_take_back, untold, voids_of
from dray_claim_controller.execute.withdrawal import Stuck, cleared, is_stuck, is_tried_again
from dray_claim_controller.observe.picture import Picture


class NextStep(Question[Step], frozen=True, kw_only=True, tag="next-step"):
    """What to do next for a decision."""

    decision: PodDecision
    epoch: int
    """Current epoch of the domain."""
    committed: tuple[str, ...] = ()
    """See ``Observed``; sorted."""
    marked: tuple[str, ...] = ()
    now_unix_s: float = 0.0
    """The time of the facts."""
    since_unix_s: float = 0.0
    """When it was decided, or, where no log says so, when its execution began."""
    binding_timeout_s: float = 600.0
    """How long after that a device may be unready for its pod."""

    def answer(self, picture: Picture) -> Step:
        seen = picture.pods.get(self.decision.pod_uid)
        claims = {
            claim.uid: picture.claims[claim.uid]
            for claim in self.decision.claims
            if claim.uid in picture.claims
        }
        pod = None if seen is None else seen.pod
        siblings = [] if pod is None else picture.claims_of(pod)
        observed = Observed(
            epoch=self.epoch,
            pod=pod,
            claims=claims,
            committed=frozenset(self.committed),
            marked=frozenset(self.marked),
            siblings=tuple(held.claim for held in siblings if held.claim.uid not in claims),
            voids={} if seen is None else voids_of(seen),
            repelled="" if seen is None else repelled_by(picture, seen, self.decision.node),
            node_gone=self.decision.node not in picture.plain[NODES.plural],
            given_up={
                uid: picture.given_up[uid].attempt for uid in claims if uid in picture.given_up
            },
            devices=readiness(
                [] if pod is None else picture.every_claim_of(pod),
                now_unix_s=self.now_unix_s,
                since_unix_s=self.since_unix_s,
                timeout_s=self.binding_timeout_s,
            ),
        )
        return next_step(observed, self.decision)


class Checked(msgspec.Struct, frozen=True, omit_defaults=True):
    """An allocation ready to be written, or why it must not be."""

    allocation: Allocation
    problem: str | None
    is_withheld: bool = False
    """Whether the problem is a claim that can't be read and may hold a device."""


class MayCommit(Question[Checked], frozen=True, kw_only=True, tag="may-commit"):
    """Whether writing the allocation would sell a device twice."""

    claim: ClaimDecision
    in_flight: tuple[Holding, ...] = ()
    """Own writes whose outcome is not seen yet."""

    def answer(self, picture: Picture) -> Checked:
        in_flight = InFlight(picture, self.in_flight)
        allocation = with_shares(self.claim, in_flight.is_shareable)
        holding = Holding(self.claim.uid, allocation)
        if problem := in_flight.problem(holding):
            return Checked(allocation, problem)
        withheld = in_flight.withheld(holding)
        return Checked(allocation, withheld, is_withheld=withheld is not None)


class MayTakeBack(Question[bool], frozen=True, kw_only=True, tag="may-take-back"):
    """Whether what a decision wrote on a claim may be taken back: nobody else uses it."""

    claim_uid: str
    attempt: int
    pod_uid: str
    binder: str

    def answer(self, picture: Picture) -> bool:
        return may_take_back(
            picture, self.claim_uid, self.attempt, pod_uid=self.pod_uid, binder=self.binder
        )


class Untold(Question[str], frozen=True, kw_only=True, tag="untold"):
    """By what a pod must say that it is never bound, before anything of a decision is cleared;
    empty where it says so already."""

    decision: PodDecision

    def answer(self, picture: Picture) -> str:
        return untold(picture, self.decision)


class MayVoid(Question[bool], frozen=True, kw_only=True, tag="may-void"):
    """Whether an allocator's wish to void a claim is granted: it is not allocated."""

    claim_uid: str
    attempt: int

    def answer(self, picture: Picture) -> bool:
        seen = picture.claims.get(self.claim_uid)
        return seen is not None and seen.claim.allocation is None


class Due(msgspec.Struct, frozen=True):
    """What has been so for long enough, and since when everything has been so."""

    now: tuple[str, ...]
    since_s: dict[str, float]


class Refused(Question[Due], frozen=True, kw_only=True, tag="refused"):
    """UIDs of the pods whose allocation is taken back: kube-scheduler refuses them."""

    after_s: float
    now_s: float
    """Monotonic."""
    since_s: dict[str, float]
    backoff_s: float = 0.0
    """How long kube-scheduler may rest between two attempts to place a pod."""

    def answer(self, picture: Picture) -> Due:
        stuck = [seen for seen in picture.our_pods() if is_stuck(picture, seen)]
        rests_s = {seen.uid: self.backoff_s for seen in stuck if is_tried_again(picture, seen)}
        timer = Stuck(self.after_s, self.since_s)
        due = timer.due([seen.uid for seen in stuck], self.now_s, rests_s)
        return Due(tuple(due), timer.since_s)

    def polled(self) -> str:
        return "refused"


class Cleared(Question[tuple[tuple[str, str], ...]], frozen=True, kw_only=True, tag="cleared"):
    """Pods and claims, by UID, whose allocation kube-scheduler took back after the gate was
    lifted: their attempts are voided. Those that are ``executing`` are left out; sorted."""

    executing: tuple[str, ...] = ()

    def answer(self, picture: Picture) -> tuple[tuple[str, str], ...]:
        return tuple(
            (seen.uid, claim)
            for seen in picture.our_pods()
            if seen.uid not in self.executing
            for claim in cleared(picture, seen)
        )

    def polled(self) -> str:
        return "cleared"


class Halfway(Question[tuple[Order, ...]], frozen=True, kw_only=True, tag="halfway"):
    """Orders that finish pods which have all their devices and lack the last step.

    Asked for those that have been so for long enough; see ``StartedHalfway``.
    """

    pods: tuple[str, ...]

    def answer(self, picture: Picture) -> tuple[Order, ...]:
        found = (adopted(picture, picture.pods[uid]) for uid in self.pods if uid in picture.pods)
        return tuple(order for order in found if order is not None)


class StartedHalfway(Question[Due], frozen=True, kw_only=True, tag="started-halfway"):
    """UIDs of the pods that were left halfway."""

    after_s: float
    now_s: float
    since_s: dict[str, float]

    def answer(self, picture: Picture) -> Due:
        halfway = [seen.uid for seen in picture.our_pods() if adopted(picture, seen) is not None]
        timer = Stuck(self.after_s, self.since_s)
        return Due(tuple(timer.due(halfway, self.now_s)), timer.since_s)

    def polled(self) -> str:
        return "halfway"
