"""The status of GPUPools, and the dedicated taints of their nodes."""
