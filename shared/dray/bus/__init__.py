"""The only adapter to NATS: a port, the real bus, and one in memory that passes the same tests."""
