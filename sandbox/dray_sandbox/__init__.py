"""A local Kubernetes API, stand-ins for its programs, and whole local stacks. In no image."""
