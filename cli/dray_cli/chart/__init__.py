"""``dray chart``: what the jobs of the Helm chart do. Administrators need not call it."""
