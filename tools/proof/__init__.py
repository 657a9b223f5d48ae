"""``make proof``: everything that dray claims, at full size, before a release or a large change."""
