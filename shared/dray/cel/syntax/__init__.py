"""Text to tree and back: the grammar of CEL as Kubernetes' API server reads it."""
