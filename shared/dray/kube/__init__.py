"""The only adapter to kubernetes_asyncio: ports, the real adapter, an in-memory one, conversion."""
