"""dray's opaque configuration in a claim, which Kubernetes does not read."""

from collections.abc import Iterator, Mapping

from dray.api.claims import Claim
from dray.api.names import DRIVER, SHARE_CONFIG_KINDS


def own_parameters(claim: Claim, *request: str) -> Iterator[Mapping[str, object]]:
    """dray's parameters for a request, in the order of the claim; without names, for all requests.

    A subrequest has two names: its request's and ``request/subrequest``.
    """
    for config in claim.spec.config:
        if config.driver != DRIVER or config.parameters.get("kind") not in SHARE_CONFIG_KINDS:
            continue
        if not request or not config.requests or any(one in config.requests for one in request):
            yield config.parameters
