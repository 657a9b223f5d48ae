"""Why a pod is pending: what fails, and on how many devices or nodes."""
