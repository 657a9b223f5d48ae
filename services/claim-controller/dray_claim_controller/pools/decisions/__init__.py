"""The status of pools, the taints of their devices, and when they are released. Pure."""
