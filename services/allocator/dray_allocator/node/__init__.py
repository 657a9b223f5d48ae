"""Which nodes a pod may run on, as far as dray reads its needs."""
