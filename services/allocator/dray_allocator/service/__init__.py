"""The replica on the bus: facts, logs and leases in; appends and commands out."""
