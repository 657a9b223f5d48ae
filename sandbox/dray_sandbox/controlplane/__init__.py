"""The real control plane: built once from Go modules, then run as four programs."""
