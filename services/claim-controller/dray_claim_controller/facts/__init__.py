"""Facts, built from the cache; ``publication`` publishes them. Pure."""
