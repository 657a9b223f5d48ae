"""``dray doctor``: what the cluster keeps, and whether dray stands on it as it should."""
