"""``make images``: the container images of dray's services, and one archive of them all."""
