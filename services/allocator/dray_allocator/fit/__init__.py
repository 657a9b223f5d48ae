"""Which devices fit a request: published devices, selectors, capacities, constraints, use."""
