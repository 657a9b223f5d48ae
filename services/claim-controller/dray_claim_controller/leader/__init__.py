"""Leader election: one claim-controller at a time publishes facts and executes decisions."""
