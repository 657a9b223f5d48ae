"""What holds for all tests."""

from hypothesis import settings

# A deadline per example measures how busy the machine is, not the code.
settings.register_profile("dray", deadline=None)
settings.load_profile("dray")
