"""The webhook's settings, ``DRAY_WEBHOOK__…``, in addition to those of every process."""

from pathlib import Path

from pydantic import Field

from dray.api.names import DEFAULT_SCHEDULER_NAMES
from dray.runtime.settings import ByteSize, CommaList, Duration, Settings, SettingsGroup
from dray.runtime.units import parse_bytes
from dray_webhook.decisions.pools import LOCAL_SERVICE_USERS, service_users


class WebhookGroup(SettingsGroup):
    """Settings of the HTTPS server and of admission."""

    host: str = "127.0.0.1"
    port: int = Field(default=8443, ge=0, le=65_535)
    """0: any free port."""
    certificate_dir: Path = Path("/var/run/dray/webhook")
    """ca.crt, tls.crt and tls.key are created in this folder if they are absent."""
    sans: CommaList = ()
    """DNS names and addresses that the certificate must have. A certificate that is created here
    also has 127.0.0.1 and localhost."""
    lookup_timeout: Duration = Field(default=0.3, gt=0, le=5)
    """Time limit for all look-ups of one answer together."""
    sampling_ratio: float = Field(default=1.0, ge=0, le=1)
    """Share of pods whose trace is recorded; the webhook decides this for all services."""
    body_limit: ByteSize = Field(default=parse_bytes("8MiB"), gt=0)
    """Enough for an old and a new object of 1.5 MiB each, with JSON escapes."""
    service_users: CommaList = LOCAL_SERVICE_USERS
    """Users who may write the annotations that only dray writes, in addition to the
    claim-controller's ServiceAccount in dray's namespace."""
    scheduler_names: CommaList = DEFAULT_SCHEDULER_NAMES
    """``schedulerName`` of pods that dray schedules; includes ``volcano`` if Volcano is absent."""
    gpu_resources: CommaList = ()
    """Container resources, such as ``nvidia.com/gpu``, that mean whole GPUs of dray."""
    device_plugin: bool = False
    """Whether node-agents are also device plugins: pods without Dynamic Resource Allocation get
    their GPUs through them."""
    event_queue: int = Field(default=1000, gt=0)
    """``pod.requested`` events kept while the bus is away."""


class WebhookSettings(Settings):
    """All settings of the webhook."""

    webhook: WebhookGroup = WebhookGroup()

    def service_users(self) -> tuple[str, ...]:
        """Users who may write dray's own annotations."""
        return service_users(self.namespace, self.webhook.service_users)
