"""The only adapter to NATS: a port, the real adapter, and an in-memory one that passes its tests."""
