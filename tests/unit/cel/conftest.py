"""What all tests of the language share: room on the stack, made before any of them begins."""

from dray.cel.syntax.recursion_limit import raise_recursion_limit

# Hypothesis warns where a test raises the recursion limit, and a deep expression would.
raise_recursion_limit(1000)
