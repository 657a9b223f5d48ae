"""Reports of node-agents about their nodes' devices, which the leader publishes as facts."""
