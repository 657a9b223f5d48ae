"""A fleet in columns: which of a hundred thousand devices a selector matches, at once.

fleet       devices in slots, live selectors and their masks: what others use
slots       which device is where
columns     one property of all devices: a code per slot, a value per code
properties  all columns, and combinations of several      facts   what a device consists of
reads       which properties a clause looks at            forms   clauses decided all at once
plan        selector → conditions and gates               gates   what joins conditions
verdicts    conditions × values    lenses, groups  values × constants of like conditions
spreading   verdicts → masks       board           the masks of all live selectors
exact       the door to the exact evaluator, which decides what has no form of its own
"""

from dray.cel.columnar.fleet import ClauseMasks, Fleet, Masks

__all__ = ["ClauseMasks", "Fleet", "Masks"]
