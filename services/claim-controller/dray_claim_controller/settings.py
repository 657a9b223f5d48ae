"""Settings of the claim-controller: environment ``DRAY_…`` and the TOML file."""

from typing import Self

from pydantic import Field, SecretStr, model_validator

from dray.api.names import DEFAULT_SCHEDULER_NAMES
from dray.bus.ports import StreamSpec
from dray.bus.topology import (
    COMMANDS_STREAM,
    DEAD_STREAM,
    EVENTS_STREAM,
    INPUTS_STREAM,
    MIB,
    STREAMS,
    limited,
)
from dray.runtime.settings import ByteSize, CommaList, Duration, Settings, SettingsGroup

_KEPT = {spec.name: spec.max_bytes for spec in STREAMS if spec.max_bytes is not None}
_LEAST_KEPT = 8 * MIB
"""The smallest limit: no message is longer."""


class Lease(SettingsGroup):
    """Leader election by a Lease in dray's namespace."""

    name: str = Field(default="dray-claim-controller", min_length=1)
    duration: Duration = 15.0
    """How long others wait for a leader that does not renew."""
    renew_deadline: Duration = 10.0
    """A leader that could not renew for so long steps back."""
    retry: Duration = 2.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.duration > self.renew_deadline > self.retry > 0:
            raise ValueError("expected duration > renew_deadline > retry, such as 15s, 10s and 2s")
        return self


class ExecutionSettings(SettingsGroup):
    """Carrying decisions out."""

    concurrency: int = Field(default=16, ge=1, le=1024)
    """How many pods are worked on at a time."""
    watch_timeout: Duration = 2.0
    """How long to wait for the own watch to show a commit before reading it."""
    binding_timeout: Duration = Field(default=600.0, gt=0)
    """How long after the decision a device may lack its binding conditions before the
    allocation is rolled back, as kube-scheduler's ``bindingTimeout``."""
    give_up_after: Duration = Field(default=20.0, gt=0)
    """How long a step of an attempt may fail, whatever Kubernetes answers, before the attempt is
    given up. Less than the allocators' ``uncommitted_after``: they would decide again before
    anybody had reported why the attempt failed."""
    withdraw_after: Duration = 10.0
    """How long a pod may be unschedulable with an allocation before that is rolled back."""
    scheduler_backoff: Duration = 10.0
    """How long kube-scheduler may rest between two attempts to place a pod: its
    ``podMaxBackoffSeconds``. Decisions after the pod's first get this much more time."""
    finish_after: Duration = 2.0
    """How long a pod with all its devices may stay unbound without an execution before the last
    step is made for it: its decision was in a log that is lost."""
    withdraw_every: Duration = 1.0
    """How often pods are looked at for both."""
    prepare_again_after: Duration = Field(default=2.0, gt=0)
    """How long a bound pod may wait for its node to prepare its GPUs before its kubelet is made to
    try again; later each time, at most five times."""


class Templates(SettingsGroup):
    """Derived ResourceClaimTemplates."""

    unused_after: Duration = 60.0
    collect_every: Duration = 5.0


class Publishing(SettingsGroup):
    """Facts, and what is written about pools."""

    tick: Duration = 1.0
    """How often the time is published for readers of the facts."""
    status_every: Duration = 1.0
    """The shortest time between two writes of a pool's status or its nodes' taints."""
    report_every: Duration = 0.2
    """How often dray looks for running pods that were not reported yet."""
    report_patience: Duration = 30.0
    """The longest time for which reports of success wait while a crowd of pods is on its way."""


class Streams(SettingsGroup):
    """How the bus keeps the streams that dray makes, and the size limits, besides the age limits,
    of streams other than facts, leases and decisions."""

    events: ByteSize = Field(default=_KEPT[EVENTS_STREAM], ge=_LEAST_KEPT)
    commands: ByteSize = Field(default=_KEPT[COMMANDS_STREAM], ge=_LEAST_KEPT)
    recordings: ByteSize = Field(default=_KEPT[INPUTS_STREAM], ge=_LEAST_KEPT)
    dead: ByteSize = Field(default=_KEPT[DEAD_STREAM], ge=_LEAST_KEPT)
    replicas: int | None = Field(default=None, ge=1, le=5)
    """How many servers keep each stream. Absent: existing streams keep their number, and new ones
    get 3 if the servers allow it. A smaller number is raised; a larger one is never lowered."""
    look_every: Duration = Field(default=60.0, gt=0)
    """How often the leader makes deleted streams again, and raises replicas if they are fewer
    than wanted."""

    store: ByteSize | None = Field(default=None, ge=_LEAST_KEPT)
    """What nats-server may store (``max_file_store``), for the alarm, if its account has no
    limit; absent: not known."""

    def specs(self) -> tuple[StreamSpec, ...]:
        """All streams, with these limits."""
        return limited(
            {
                EVENTS_STREAM: self.events,
                COMMANDS_STREAM: self.commands,
                INPUTS_STREAM: self.recordings,
                DEAD_STREAM: self.dead,
            }
        )


class Logs(SettingsGroup):
    """How much is kept of decision logs, apart from what readers need to begin."""

    keep_for: Duration = Field(default=86_400.0, ge=0)
    """How long records are kept for people: ``dray trace``, ``dray record``."""
    keep_bytes: ByteSize = Field(default=256 * MIB, ge=0)
    """A log that is larger keeps only its last two checkpoints and the records since."""
    trim_every: Duration = Field(default=60.0, gt=0)
    """How often logs are trimmed, old ones deleted, and the store measured."""


class Owner(SettingsGroup):
    """Pools that kube-scheduler owns, and pools that change hands."""

    allocating_scheduler: bool = True
    """Whether this cluster's kube-scheduler allocates devices to claims."""
    quarantine: Duration = 60.0
    """How long dray waits before it allocates devices that kube-scheduler had: an allocation in
    flight may still land."""


class GroupSettings(SettingsGroup):
    """Pod groups."""

    scheduler_names: CommaList = DEFAULT_SCHEDULER_NAMES
    """The same as the webhook's. If ``volcano`` is one of them, dray writes the status of all
    PodGroups and Queues of Volcano, which must be absent."""
    timeout: Duration = Field(default=300.0, gt=0)
    """How long too few pods of a group may run after its first decision, unless its annotation
    says otherwise; then it gives its devices back."""
    grace: Duration = Field(default=60.0, ge=0)
    """How long too few pods of a group may run after the group has run."""


class Probing(SettingsGroup):
    """How often to ask which fields the API server keeps: an upgrade can change that."""

    look_every: Duration = 5.0
    """How often dray checks whether another server answers: it was away, or reports another
    version."""
    ask_every: Duration = 300.0
    """How often the server is asked what it keeps although nothing hints at a change."""


class Identities(SettingsGroup):
    """The users that node-agents get on the bus."""

    issuer_seed: SecretStr = SecretStr("")
    """Seed of the account key (``SA…``) whose public half is the issuer of nats-server's
    authentication callout. Without it this instance confirms no node-agent."""
    service_account: str = Field(default="dray-node-agent", min_length=1)
    """The service account of all node-agents, in dray's namespace."""
    audience: str = Field(default="dray-nats", min_length=1)
    """The audience of their projected tokens."""
    lifetime: Duration = Field(default=3600.0, ge=60, le=3600)
    """How long a connection lasts before its token is checked again."""


class ControllerSettings(Settings):
    """All settings."""

    lease: Lease = Lease()
    execution: ExecutionSettings = ExecutionSettings()
    templates: Templates = Templates()
    publishing: Publishing = Publishing()
    probing: Probing = Probing()
    owner: Owner = Owner()
    streams: Streams = Streams()
    logs: Logs = Logs()
    identities: Identities = Identities()
    groups: GroupSettings = GroupSettings()
