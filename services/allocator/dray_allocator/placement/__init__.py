"""The choice of a node and devices for a pod, and the reasons if there is none."""
