"""Who leads: one claim-controller at a time publishes and executes."""
