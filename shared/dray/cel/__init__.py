"""Device selectors: CEL in the environment of Dynamic Resource Allocation.

Packages and modules, from top to bottom; an import contract keeps the order:

admission     the API server's answer to a new selector
eval          evaluation on one device: result, error and cost
cost          the estimated worst-case cost
check         the static check: types, overloads, refused literals and constants
description   a selector in words
reads         the attributes and capacities that a selector reads
device, view  the variable ``device``, made from a published ResourceSlice
library       values, functions on values, and the adapter to RE2
types         types, and the functions that an environment declares on them
syntax        text to tree and back
limits        the limits on the cost and work of one evaluation
environment   the language of one API server: version, feature gates, and use of the expression
errors        errors with their position in the text
"""
