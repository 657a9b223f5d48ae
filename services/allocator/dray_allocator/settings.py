"""The allocator's settings: ``DRAY_ALLOCATOR__…`` and those of every process."""

from pydantic import Field

from dray.api import names
from dray.runtime.settings import CommaList, Duration, Settings, SettingsGroup
from dray_allocator.values.options import AllocatorOptions

_DEFAULT = AllocatorOptions()


class Allocator(SettingsGroup):
    """Time-outs and limits for decisions and for serving domains."""

    drivers: CommaList = (names.DRIVER,)
    """Drivers whose devices dray allocates; all others belong to kube-scheduler."""
    uncommitted_after: Duration = Field(default=_DEFAULT.uncommitted_after_s, gt=0)
    """If a decision has no ``status.allocation`` after this time, it is voided and made again."""
    void_repeat: Duration = Field(default=_DEFAULT.void_repeat_s, gt=0)
    """Time between repeated requests to the claim-controller to void an attempt."""
    exclusion: Duration = Field(default=_DEFAULT.exclusion_s, ge=0)
    """The longest time for which a claim avoids a node on which its attempts were voided. After the
    first void, the time is a twentieth of this."""
    checkpoint_interval: Duration = Field(default=_DEFAULT.checkpoint_interval_s, gt=0)
    waiting_repeat: Duration = Field(default=_DEFAULT.waiting_repeat_s, ge=0)
    """How soon a waiting pod's reasons are recorded again if only their counts changed."""
    pods_per_record: int = Field(default=_DEFAULT.pods_per_record, ge=1, le=256)
    unconfirmed_records: int = Field(default=_DEFAULT.unconfirmed_records, ge=1)
    """The maximum number of records that are appended but not confirmed yet."""
    group_hold: Duration = Field(default=_DEFAULT.group_hold_s, ge=0)
    """How long the devices of a lost pod are held for its PodGroup; 0: not at all."""
    node_hold_after: Duration = Field(default=_DEFAULT.node_hold_after_s, ge=0)
    """How long a pod or PodGroup must wait before nodes are held for it."""
    node_hold: Duration = Field(default=_DEFAULT.node_hold_s, ge=0)
    """The longest time for which nodes are held for it; 0: not at all."""
    group_trials: int = Field(default=_DEFAULT.group_trials, ge=0)
    """The maximum number of searches of a node for several pods of one PodGroup together, after one
    of its pods found no node."""
    lease_ttl: Duration = Field(default=3.0, ge=1)
    """If a lease is not renewed for this long, another replica takes the domain over."""
    lease_renewal: Duration = Field(default=1.0, gt=0)


class AllocatorSettings(Settings):
    """All settings of the process."""

    allocator: Allocator = Allocator()

    def options(self) -> AllocatorOptions:
        """The options that decisions depend on."""
        chosen = self.allocator
        return AllocatorOptions(
            writer=self.instance,
            drivers=chosen.drivers,
            uncommitted_after_s=chosen.uncommitted_after,
            void_repeat_s=chosen.void_repeat,
            exclusion_s=chosen.exclusion,
            checkpoint_interval_s=chosen.checkpoint_interval,
            waiting_repeat_s=chosen.waiting_repeat,
            pods_per_record=chosen.pods_per_record,
            unconfirmed_records=chosen.unconfirmed_records,
            group_hold_s=chosen.group_hold,
            node_hold_after_s=chosen.node_hold_after,
            node_hold_s=chosen.node_hold,
            group_trials=chosen.group_trials,
        )
