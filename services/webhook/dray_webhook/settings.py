"""What can be set: ``DRAY_WEBHOOK__…`` beside the settings of every process."""

from pathlib import Path

from pydantic import Field

from dray.runtime.settings import ByteSize, CommaList, Duration, Settings, SettingsGroup
from dray.runtime.units import parse_bytes
from dray_webhook.pools import LOCAL_SERVICE_USERS, service_users


class Webhook(SettingsGroup):
    """The HTTPS side and the decisions' knobs."""

    host: str = "127.0.0.1"
    port: int = Field(default=8443, ge=0, le=65_535)
    """0: any free one."""
    certificate_dir: Path = Path("/var/run/dray/webhook")
    """ca.crt, tls.crt and tls.key are made here if they are absent."""
    sans: CommaList = ()
    """DNS names and addresses of the certificate beside 127.0.0.1 and localhost."""
    lookup_timeout: Duration = Field(default=0.3, gt=0, le=5)
    """For all look-ups before one negative answer together."""
    sampling_ratio: float = Field(default=1.0, ge=0, le=1)
    """Share of pods whose trace is recorded; decided here, once for all services."""
    body_limit: ByteSize = Field(default=parse_bytes("8MiB"), gt=0)
    """An object of 1.5 MiB, old and new, with the escapes of JSON."""
    service_users: CommaList = LOCAL_SERVICE_USERS
    """Users who may write the annotations that only dray writes, beside the claim-controller's
    ServiceAccount in dray's namespace."""
    event_queue: int = Field(default=1000, gt=0)
    """``pod.requested`` events kept while the bus is away."""


class WebhookSettings(Settings):
    """Everything this process reads."""

    webhook: Webhook = Webhook()

    def names(self) -> tuple[str, ...]:
        """Names in the certificate."""
        return tuple(dict.fromkeys(("127.0.0.1", "localhost", *self.webhook.sans)))

    def service_users(self) -> tuple[str, ...]:
        """Users who may write dray's own annotations."""
        return service_users(self.namespace, self.webhook.service_users)
