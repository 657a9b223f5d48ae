"""The only door to kubernetes_asyncio: ports, the real door, an in-memory one, conversion."""
