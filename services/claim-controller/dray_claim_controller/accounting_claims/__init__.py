"""Claims that account for pods without claims: pods of the device plugin, and pods without GPUs."""
