"""What ``deploy/compose`` needs besides its containers: secrets, certificates, kubeconfigs, and
dray's objects in the API server."""
