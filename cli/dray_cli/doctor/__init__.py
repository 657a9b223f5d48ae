"""``dray doctor``: which features the cluster has, and whether dray works on it."""
