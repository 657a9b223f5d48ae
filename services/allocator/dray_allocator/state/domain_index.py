"""Which domains an event may concern, so that no event looks at every domain.

A set may name too many domains, never too few: a look at it drops those that no longer
belong there.
"""

from dataclasses import dataclass, field

from dray.api.pods import GroupKey

Names = dict[str, None]


@dataclass(slots=True)
class DomainIndex:
    """Domains by the objects that they know, and by what they wait for."""

    claims: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Per claim, the domains whose log has it, or that have an attempt of it to settle."""
    pods: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Per pod, the domains whose log has a decision on it."""
    groups: dict[GroupKey, Names] = field(default_factory=dict)
    """Per PodGroup, the domains that have to look at it."""
    unread: Names = field(default_factory=dict)
    """Domains whose log is not folded to its end, or is ahead of the facts."""
    undecodable: Names = field(default_factory=dict)
    """Domains with a record that can't be decoded."""
    appending: Names = field(default_factory=dict)
    """Domains with records that are not read back."""
