"""The parts of ``deploy/compose`` besides its containers: secrets, certificates, kubeconfigs, and
dray's objects in the API server."""
