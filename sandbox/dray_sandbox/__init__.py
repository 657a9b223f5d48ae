"""A local Kubernetes API, stand-ins for its programs, and whole stacks. Never in an image."""
