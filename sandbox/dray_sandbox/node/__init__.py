"""Real nodes on this machine: containerd, the kubelet and kube-proxy in namespaces of their own.

A node sees this machine's files, but has its own processes, mounts, network and host name, as a
container has. What it leaves in the kernel ends with its first process, however that ends; only
its cgroups are removed by ``machine``, or by the next start.
"""
