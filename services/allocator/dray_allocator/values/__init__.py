"""Values that all layers share: events and effects, options, byte budgets of caches."""
