"""Periods of the kubelet's loops."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KubeletTimings:
    """The defaults are those of kubelet 1.36."""

    registration_s: float = 1.0
    """The period of the plugin manager's look at the registry folder. A plugin is registered or
    unregistered up to this long after its socket appears or disappears."""
    resync_s: float = 60.0
    """A pod whose claims could not be prepared is synchronised again only after 1 to 1.5 times this
    time, unless the pod's object changes: ``SyncPod`` reports no error."""
    container_retry_s: float = 10.0
    """The same for a container that could not be created, which is an error of ``SyncPod``."""
    health_retry_s: float = 5.0
    """A stream of device health that ended is opened again after this time."""
    health_timeout_s: float = 30.0
    """Health that was not reported for this long is unknown."""
    wipe_s: float = 30.0
    """How long a driver may be disconnected before its slices are deleted."""
    renew_s: float = 10.0
    """The period after which the node's lease is renewed; it is valid for four times as long."""

    def resync_delay_s(self) -> float:
        """The time until a pod's next resync (``workerResyncIntervalJitterFactor``)."""
        return _jitter(self.resync_s)

    def container_delay_s(self) -> float:
        """The time until the next try of a container (``workerBackOffPeriodJitterFactor``)."""
        return _jitter(self.container_retry_s)


def _jitter(period_s: float) -> float:
    return period_s * random.uniform(1.0, 1.5)
