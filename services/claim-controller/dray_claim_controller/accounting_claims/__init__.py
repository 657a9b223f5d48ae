"""Claims that account for pods without claims: of the device plugin, and without GPUs."""
