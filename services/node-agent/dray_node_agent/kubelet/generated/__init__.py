"""Messages of the kubelet's protocols, written by ``tools.generate``."""
