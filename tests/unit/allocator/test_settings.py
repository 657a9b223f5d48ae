"""Every time-out is a setting with its unit."""

from dray_allocator.settings import AllocatorSettings
from dray_allocator.values.options import AllocatorOptions


def test_settings_become_rules(monkeypatch):
    monkeypatch.setenv("DRAY_INSTANCE", "one")
    monkeypatch.setenv("DRAY_ALLOCATOR__UNCOMMITTED_AFTER", "45s")
    monkeypatch.setenv("DRAY_ALLOCATOR__EXCLUSION", "2m")
    monkeypatch.setenv("DRAY_ALLOCATOR__DRIVERS", "tensor-fusion.ai.dra-driver,gpu.nvidia.com")
    options = AllocatorSettings().options()
    assert (options.writer, options.uncommitted_after_s, options.exclusion_s) == (
        "one",
        45.0,
        120.0,
    )
    assert options.drivers[1] == "gpu.nvidia.com"


def test_defaults_are_the_core_s_own(monkeypatch):
    monkeypatch.setenv("DRAY_INSTANCE", "allocator")
    assert AllocatorSettings().options() == AllocatorOptions()
