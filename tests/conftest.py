"""What holds for all tests."""

import pytest
from hypothesis import settings

# A deadline per example measures how busy the machine is, not the code.
settings.register_profile("dray", deadline=None)
settings.load_profile("dray")

# Histories judge themselves: where one fails, it should say what it saw.
pytest.register_assert_rewrite("tests.unit.allocator.histories")
