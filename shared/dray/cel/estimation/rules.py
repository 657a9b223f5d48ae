"""What one call costs at worst: Kubernetes' rules, then those of cel-go's libraries and its own."""

from dray.cel.estimation.call import UNIT, Call, Estimate
from dray.cel.estimation.extensions import BY_EXTENSION
from dray.cel.estimation.kubernetes import BY_FUNCTION
from dray.cel.estimation.standard import BY_OVERLOAD


def call_cost(call: Call) -> Estimate:
    """The cost of a call beside that of its operands."""
    for rules, key in (
        (BY_EXTENSION, call.overload),
        (BY_FUNCTION, call.function),
        (BY_OVERLOAD, call.overload),
    ):
        rule = rules.get(key)
        found = rule(call) if rule else None
        if found is not None:
            return found
    return UNIT
