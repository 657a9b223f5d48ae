"""Infrastructure of every process: settings, health pages, lifetime, clock, logs."""
