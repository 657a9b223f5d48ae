"""The only adapter to kubernetes_asyncio: the port, the real adapter, one in memory, conversion."""
