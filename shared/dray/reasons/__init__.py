"""Reasons why a pod waits or was refused, as data and as text."""

from dray.reasons.reason import Nearest, Reason, bounded, in_words, name_list, not_enough

__all__ = ["Nearest", "Reason", "bounded", "in_words", "name_list", "not_enough"]
