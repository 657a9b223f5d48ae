"""Messages of the kubelet's protocols, written by ``dray_node_agent.kubelet.generate``."""
