"""Why something waits or was refused, as data that services pass on and people read."""

from dray.reasons.reason import Nearest, Reason, bounded, in_words, name_list, not_enough

__all__ = ["Nearest", "Reason", "bounded", "in_words", "name_list", "not_enough"]
