"""The only adapter to Kubernetes' API: the port, the real adapter, one in memory, conversion."""
