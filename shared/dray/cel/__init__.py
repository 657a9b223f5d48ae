"""Device selectors: CEL in the environment of Dynamic Resource Allocation.

Packages and modules, from top to bottom; an import contract keeps the order:

admission     the API server's answer to a new selector
eval          evaluation on one device: result, error and cost
cost          the estimated cost at worst
check         the static check: types, overloads, refused literals and constants
description   a selector in words
reads         the attributes and capacities that a selector reads
device, view  the variable ``device``, made of what a ResourceSlice publishes
library       values, the functions on them, and the adapter to RE2
types         types, and the functions that an environment declares
syntax        text to tree and back
limits        what one evaluation may cost and do
environment   the language of one API server: its version, feature gates, and the expression's use
errors        errors with their position in the text
"""
