"""Field tables of the built-in kinds that this server decodes strictly.

``devices``, `resource.k8s.io/v1`, is complete. ``core`` kinds are open: known quantities become
canonical, all other fields are stored unchanged. ``parts`` has types that both use.
"""
