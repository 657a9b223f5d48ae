"""The node's GPUs: NVML or simulated."""
