"""Devices that the board reads: as published, selectors, use, and what the search gets of them."""
