"""Match devices by the CEL selectors of a DeviceClass and of a request."""

from collections.abc import Iterator

from dray.api.claims import Claim, DeviceRequest
from dray.api.devices import DeviceClass
from dray.api.pods import Node
from dray.cel.admission import kubernetes_words
from dray.cel.device import view_of
from dray.cel.errors import CelCompileError, CelEvaluationError
from dray.cel.eval.program import Program, compile
from dray.cel.view import DeviceView
from dray_allocator.devices.candidates import Candidate
from dray_allocator.devices.errors import AllocationError
from dray_allocator.devices.node_selection import is_reached
from dray_allocator.devices.published_devices import PublishedDevices
from dray_allocator.devices.selector_cache import SelectorCache
from dray_allocator.devices.versions import SchedulerVersion


class DeviceSelectors:
    """Results of selectors, cached for one node and one attempt.

    A selector is evaluated only when the search tries a device: an evaluation error ends the
    attempt only then. Devices and requests do not change during the attempt.
    """

    def __init__(self, node: Node, version: SchedulerVersion) -> None:
        self._node = node
        self._version = version
        self._language = version.language
        self._views: dict[Candidate, DeviceView] = {}
        self._results: dict[tuple[int, Candidate], bool] = {}

    def match(
        self, claim: Claim, ask: DeviceRequest, of_class: DeviceClass, candidate: Candidate
    ) -> bool:
        """Whether ``candidate`` matches ``ask`` and its class, and is for this node.

        Raises:
            AllocationError: a selector doesn't compile or can't be evaluated on the device, or a
                node selector can't be parsed.
        """
        if candidate.device.binding_conditions and not self._version.device_binding:
            return False
        key = id(ask), candidate
        found = self._results.get(key)
        if found is None:
            found = self._results[key] = self._match(claim, ask, of_class, candidate)
        return found

    def _match(
        self, claim: Claim, ask: DeviceRequest, of_class: DeviceClass, candidate: Candidate
    ) -> bool:
        for owner, number, expression in _expressions(claim, ask, of_class):
            program = self._compiled(owner, number, expression)
            try:
                if not program.matches(self._view(candidate)):
                    return False
            except CelEvaluationError as error:
                raise AllocationError(
                    f"{owner}: selector #{number} on device {candidate.id}: "
                    f"CEL runtime error: {error}"
                ) from None
        if not candidate.part.per_device_reach:
            return True
        return is_reached(candidate.device.reach, self._node)

    def _compiled(self, owner: str, number: int, expression: str) -> Program:
        try:
            return compile(expression, self._language)
        except CelCompileError as error:
            words = kubernetes_words(error)
            raise AllocationError(
                f"{owner}: selector #{number}: CEL compile error: {words}"
            ) from None

    def _view(self, candidate: Candidate) -> DeviceView:
        view = self._views.get(candidate)
        if view is None:
            shown = self._version.sharing_seen_by_selectors
            view = self._views[candidate] = view_of(
                candidate.id.driver, candidate.device, shows_sharing=shown
            )
        return view


class LenientSelectors(DeviceSelectors):
    """A device on which a selector can't be evaluated does not match; the attempt goes on. For
    cards, results come from the selector cache."""

    def __init__(
        self,
        node: Node,
        version: SchedulerVersion,
        published: PublishedDevices,
        cache: SelectorCache,
    ) -> None:
        super().__init__(node, version)
        self._published = published
        self._cache = cache

    def _match(
        self, claim: Claim, ask: DeviceRequest, of_class: DeviceClass, candidate: Candidate
    ) -> bool:
        card = self._published.cards.get(candidate.id)
        if card is not None and not card.shape.fault:
            return self._cache.matches((*of_class.selectors, *ask.selectors), card)
        try:
            return super()._match(claim, ask, of_class, candidate)
        except AllocationError:
            return False


def _expressions(
    claim: Claim, ask: DeviceRequest, of_class: DeviceClass
) -> Iterator[tuple[str, int, str]]:
    for number, expression in enumerate(of_class.selectors):
        yield f"class {of_class.name}", number, expression
    for number, expression in enumerate(ask.selectors):
        yield f"claim {claim}", number, expression
