"""What every process needs around its work: settings, health pages, lifetime, clock, logs."""
