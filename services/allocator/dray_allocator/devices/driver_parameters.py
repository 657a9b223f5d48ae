"""What a claim says to dray in the driver's own configuration, besides what Kubernetes reads."""

from collections.abc import Iterator, Mapping

from dray.api.claims import Claim
from dray.api.names import DRIVER, LIMITS_KIND


def own_parameters(claim: Claim, *request: str) -> Iterator[Mapping[str, object]]:
    """Parameters that concern a request of any of these names, as an alternative has two, in the
    claim's order; without a name all there are."""
    for config in claim.spec.config:
        if config.driver != DRIVER or config.parameters.get("kind") != LIMITS_KIND:
            continue
        if not request or not config.requests or any(one in config.requests for one in request):
            yield config.parameters
