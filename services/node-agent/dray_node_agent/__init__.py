"""The node-agent: publishes a node's GPUs and prepares claims for the kubelet.

``decisions`` is pure; ``gpus`` reads NVML, ``files`` the disk, ``kubelet`` serves gRPC; ``agent``
runs the loops, ``app`` starts it.
"""
