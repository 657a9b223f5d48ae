"""What all tests of the language share: room on the stack, made before any of them begins."""

from dray.cel.depth import make_room

# Hypothesis warns where a test raises the recursion limit, and a deep expression would.
make_room(1000)
