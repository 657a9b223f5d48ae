"""The path of a claim's fact through the allocator does not grow (docs/adr/0033)."""

from benchmarks.fact_path import path

MODULES = 19
ENTRIES = 6
"""Into one module, from others: one, and five returns."""


async def test_a_claims_fact_enters_no_more_modules_than_recorded() -> None:
    entered = await path()

    assert "dray_allocator.cycle.step" in entered
    assert len(entered) <= MODULES, sorted(entered)
    assert max(entered.values()) <= ENTRIES, entered.most_common(3)
