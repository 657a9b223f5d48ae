"""The only door to NATS: a port, the real door, and an in-memory one that passes its tests."""
