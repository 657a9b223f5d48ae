"""Real nodes on this machine: containerd, the kubelet and kube-proxy in their own namespaces.

A node sees this machine's files, but has its own processes, mounts, network and host name, as a
container has. Its kernel resources disappear when its first process ends, for any reason. Only its
cgroups stay: ``machine`` or the next start removes them.
"""
